"""Many clients at once ask a search page: how many searches a second, and how long each waits.

    simcse serve outputs/RUN/encoder --sentences captions.txt &
    python -m benchmarks.serve http://127.0.0.1:8000

Every client asks one sentence after the other, over one connection; the sentences are of Wikipedia. Clients take
their share of the processor too.
"""

import argparse
import http.client
import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import quantiles
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from simcse_pl.data.readers import read_sentences
from simcse_pl.data.wikipedia import gensim_sample

_TIMEOUT = 60  # seconds


class Client:
    """One connection, and what is asked over it.

    Args:
        address: of the server.
        sentences: what is asked, again and again.
    """

    def __init__(self, address: str, sentences: list[str]) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=_TIMEOUT)
        self._sentences = itertools.cycle(sentences)

    def ask(self) -> float:
        """Seconds until the answer to one sentence was read."""
        body = json.dumps({"queries": [next(self._sentences)], "top_k": 10})
        start = time.perf_counter()
        self._connection.request("POST", "/search", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        read = answer.read()
        if answer.status != 200:
            raise RuntimeError(read.decode())
        return time.perf_counter() - start


def waits(address: str, sentences: list[str], clients: int, seconds: float) -> list[float]:
    """Seconds that each search took while so many clients asked for so long, the first of each not counted."""
    start = threading.Barrier(clients)

    def ask(number: int) -> list[float]:
        client = Client(address, sentences[number::clients])
        client.ask()
        start.wait(_TIMEOUT)  # one that was refused does not come
        end = time.perf_counter() + seconds
        took = []
        while time.perf_counter() < end:
            took.append(client.ask())
        return took

    with ThreadPoolExecutor(clients) as threads:
        return list(itertools.chain.from_iterable(threads.map(ask, range(clients))))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", metavar="ADDRESS", help="as `simcse serve` says it")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 10, 50], help="at once")
    parser.add_argument("--seconds", type=float, default=20, help="for each number of clients")
    arguments = parser.parse_args()
    sentences = read_sentences(gensim_sample())
    table = Table(title=f"searches of {arguments.address}")
    for column in ("clients", "searches", "searches/s", "median, ms", "95th percentile, ms", "longest, ms"):
        table.add_column(column, justify="right")
    for clients in arguments.clients:
        took = waits(arguments.address, sentences, clients, arguments.seconds)
        cuts = quantiles(took, n=20)
        times = [f"{1e3 * own:.0f}" for own in (cuts[9], cuts[18], max(took))]
        table.add_row(f"{clients}", f"{len(took)}", f"{len(took) / arguments.seconds:.1f}", *times)
    Console().print(table)


if __name__ == "__main__":
    main()
