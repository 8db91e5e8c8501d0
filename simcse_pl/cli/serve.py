"""Serve a web page and a JSON endpoint on this machine, to search sentences with one encoder or compare two.

With two encoders, --pooling takes two names, such as mean,cls, where an empty name means the saved pooling, and
--sentences can be given twice. All other options apply to both encoders.
"""

import argparse
import socket

from simcse_pl.cli.common import add_column, add_encoder, load_or_build_index, load_simcse
from simcse_pl.cli.info import describe
from simcse_pl.utils.errors import UserError, first_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser, nargs="+")
    parser.add_argument(
        "--sentences",
        metavar="FILE",
        action="append",
        required=True,
        help="sentences to search: .txt, .csv, .tsv, .jsonl or .parquet, or the folder of an index; give the option "
        "twice if the two encoders search different files",
    )
    add_column(parser)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: %(default)s, which only this machine can reach)",
    )
    parser.add_argument(
        "--port", type=int, default=8000, metavar="N", help="port; 0: any free port (default: %(default)s)"
    )
    parser.add_argument(
        "--max-queries",
        type=int,
        default=32,
        metavar="N",
        help="largest number of queries per request (default: %(default)s)",
    )
    about = "largest number of characters per query (default: %(default)s)"
    parser.add_argument("--max-characters", type=int, default=1000, metavar="N", help=about)


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    try:
        import uvicorn

        from simcse_pl.inference.server.application import build_app
    except ModuleNotFoundError as error:
        raise UserError(f"serve needs {error.name}: pip install fastapi uvicorn") from None
    names = arguments.encoder
    if len(names) > 2:
        raise UserError(f"serve takes one or two encoders, but {len(names)} were given")
    poolings = _per_encoder("--pooling", (arguments.pooling or "").split(","), names)
    sources = _per_encoder("--sentences", arguments.sentences, names)
    with listen(arguments.host, arguments.port) as listener:  # first: encoding may take long
        encoders = []
        for name, pooling, source in zip(names, poolings, sources, strict=True):
            own = {"encoder": name, "pooling": pooling or None}
            encoders.append(load_simcse(argparse.Namespace(**vars(arguments) | own)))
            load_or_build_index(encoders[-1], source, arguments.column)
        host, port = listener.getsockname()[:2]
        print(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", flush=True)
        # On this machine only: reject requests of web sites whose host name resolves to this machine.
        hosts = [host, "localhost"] if host.startswith("127.") else ["*"]
        about = list(map(describe, encoders))
        app = build_app(encoders, about, arguments.max_queries, arguments.max_characters, hosts)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise UserError if the address or the port cannot be used."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        why = f"{first_line(error)} (--port 0 takes a free port)"
        raise UserError(f"cannot listen on --host {host} --port {port}: {why}") from error


def _per_encoder(option: str, values: list[str], encoders: list[str]) -> list[str]:
    """Return one value per encoder; a single value is for all of them."""
    if len(values) not in (1, len(encoders)):
        raise UserError(f"{option}: {len(values)} values for {len(encoders)} encoder{'s' * (len(encoders) > 1)}")
    return values * len(encoders) if len(values) == 1 else values
