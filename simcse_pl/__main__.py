"""Use a trained encoder from the command line."""

import argparse
import importlib

from simcse_pl.command_line import Parser, run
from simcse_pl.errors import did_you_mean

COMMANDS = {
    "encode": "sentences of a file or of standard input into vectors",
    "similarity": "of two sentences, or of the pairs in a file",
    "index": "the sentences of a file, to search them",
    "search": "an index, or a file of sentences",
    "export": "an encoder, for sentence-transformers, ONNX or the hub",
    "mteb": "measure an encoder on tasks of MTEB",
    "info": "what an encoder is",
    "serve": "a local page to search sentences, two encoders side by side",
}


def main() -> None:
    """The command line."""
    listed = "\n".join(f"  {name:<12}{about}" for name, about in COMMANDS.items())
    parser = Parser(
        prog="python -m simcse_pl",
        usage="%(prog)s COMMAND ...",
        description=f"{__doc__}\n\ncommands (COMMAND --help says more):\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", default="", metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    first = parser.parse_args()
    if first.command not in COMMANDS:
        wrong = f"no command {first.command}{did_you_mean(first.command, COMMANDS)}"
        parser.error(wrong if first.command else f"give a command: {', '.join(COMMANDS)}")
    command = importlib.import_module(f"simcse_pl.commands.{first.command}")  # alone: torch comes with it
    own = Parser(prog=f"python -m simcse_pl {first.command}", description=command.__doc__)
    command.add_arguments(own)
    run(own, command.run, first.rest)


if __name__ == "__main__":
    main()
