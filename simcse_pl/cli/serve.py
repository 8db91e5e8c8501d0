"""A local web page to search sentences with an encoder, or with two side by side, and a JSON endpoint.

Of two encoders the options are the same; --pooling mean,cls says two, and mean, leaves the second its own.
"""

import argparse
import sys
from pathlib import Path

from simcse_pl.cli.common import add_column, add_encoder, check_column, encoder_of
from simcse_pl.cli.info import describe
from simcse_pl.data.readers.row_reader import read_sentences
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.utils.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser, nargs="+")
    parser.add_argument(
        "--sentences",
        metavar="FILE",
        action="append",
        required=True,
        help=".txt, .csv, .tsv, .jsonl or .parquet, or the folder of an index; given twice, one for each encoder",
    )
    add_column(parser)
    parser.add_argument("--host", default="127.0.0.1", help="listen on this address (%(default)s: this machine alone)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="0 for one that is free (%(default)s)")
    parser.add_argument("--max-queries", type=int, default=32, metavar="N", help="of one request (%(default)s)")
    parser.add_argument("--max-characters", type=int, default=1000, metavar="N", help="of a query (%(default)s)")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    try:
        from simcse_pl.inference.server.application import Limits, Served, application
        from simcse_pl.inference.server.listen import address, host_names, is_loopback, listen
        from simcse_pl.inference.server.listen import run as answer
    except ModuleNotFoundError as error:
        raise UserError(f"serve needs {error.name}: pip install fastapi uvicorn") from None
    limits = Limits(arguments.max_queries, arguments.max_characters)
    names = arguments.encoder
    if len(names) > 2:
        raise UserError(f"serve takes one encoder, or two side by side, and was given {len(names)}")
    poolings = _for_each("--pooling", (arguments.pooling or "").split(","), names)
    sources = _for_each("--sentences", arguments.sentences, names)
    check_column(arguments.column, sources)
    with listen(arguments.host, arguments.port) as listener:  # at once: a port that is taken is told before the work
        corpora = {source: read_sentences(source, arguments.column) for source in sources if not Path(source).is_dir()}
        served = []
        for name, pooling, source in zip(names, poolings, sources, strict=True):
            own = {"encoder": name, "pooling": pooling or None}
            simcse = encoder_of(argparse.Namespace(**vars(arguments) | own))
            _index(simcse, source, corpora)
            served.append(Served(name, simcse, describe(simcse.encoder)))
        if not is_loopback(listener):
            print(f"--host {arguments.host}: whoever can reach this machine can search", file=sys.stderr)
        print(address(listener), flush=True)
        answer(application(served, limits, host_names(listener)), listener)


def _for_each(option: str, given: list[str], encoders: list[str]) -> list[str]:
    """An option's values, one for each encoder, where one may stand for all."""
    if len(given) not in (1, len(encoders)):
        raise UserError(f"{option}: {len(given)} are given, and {len(encoders)} encoder{'s' * (len(encoders) > 1)}")
    return given * len(encoders) if len(given) == 1 else given


def _index(simcse: SimCSE, source: str, corpora: dict[str, list[str]]) -> None:
    if source in corpora:
        simcse.build_index(corpora[source])
    else:
        simcse.load_index(source)
