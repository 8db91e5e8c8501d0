"""Use a trained encoder from the command line."""

import argparse
import importlib

from simcse_pl.command_line import told_in_one_line

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
    parser = argparse.ArgumentParser(
        prog="python -m simcse_pl",
        usage="%(prog)s COMMAND ...",
        description=f"{__doc__}\n\ncommands (COMMAND --help says more):\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    first = parser.parse_args()
    command = importlib.import_module(f"simcse_pl.commands.{first.command}")  # alone: torch comes with it
    own = argparse.ArgumentParser(prog=f"python -m simcse_pl {first.command}", description=command.__doc__)
    command.add_arguments(own)
    with told_in_one_line(own):
        command.run(own.parse_intermixed_args(first.rest))


if __name__ == "__main__":
    main()
