"""Serve a web page and a JSON endpoint on this machine, to search sentences with one encoder or compare several.

With several encoders, --pooling takes a name for each, such as mean,cls, where an empty name means the saved pooling,
and --sentences can be given for each. All other options apply to all encoders.
"""

import argparse
import socket

from simcse_pl.cli.common import add_column, add_encoder, load_or_build_index, load_simcse
from simcse_pl.utils.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, nargs="+")
    text = (
        "sentences to search: .txt, .csv, .tsv, .jsonl or .parquet, or the folder of an index; give the option for "
        "each encoder if they search different files"
    )
    parser.add_argument("--sentences", metavar="FILE", action="append", required=True, help=text)
    add_column(parser)
    text = "address to listen on (default: %(default)s, which only this machine can reach)"
    parser.add_argument("--host", default="127.0.0.1", help=text)
    text = "port; 0: any free port (default: %(default)s)"
    parser.add_argument("--port", type=int, default=8000, metavar="N", help=text)


def run(arguments: argparse.Namespace) -> None:
    import uvicorn  # of an extra

    from simcse_pl.inference.server import build_app

    names = arguments.encoder
    poolings = _per_encoder("--pooling", (arguments.pooling or "").split(","), names)
    sources = _per_encoder("--sentences", arguments.sentences, names)
    with socket.create_server((arguments.host, arguments.port)) as listener:  # first: encoding may take long
        encoders = []
        for name, pooling, source in zip(names, poolings, sources, strict=True):
            own = {"encoder": name, "pooling": pooling or None}
            encoders.append(load_simcse(argparse.Namespace(**vars(arguments) | own)))
            load_or_build_index(encoders[-1], source, arguments)
        host, port = listener.getsockname()
        print(f"http://{host}:{port}", flush=True)
        # On this machine only: reject requests of web sites whose host name resolves to this machine.
        app = build_app(encoders, [host, "localhost"] if host.startswith("127.") else ["*"])
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)).run(sockets=[listener])


def _per_encoder(option: str, values: list[str], encoders: list[str]) -> list[str]:
    """Return one value per encoder; a single value is for all of them."""
    if len(values) not in (1, len(encoders)):
        raise UserError(f"{option}: {len(values)} values for {len(encoders)} encoder{'s' * (len(encoders) > 1)}")
    return values * len(encoders) if len(values) == 1 else values
