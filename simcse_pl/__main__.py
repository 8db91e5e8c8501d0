"""Train, measure and use sentence encoders."""

import argparse
import importlib
import runpy
import sys
from collections.abc import Mapping, Sequence

from simcse_pl.utils.command_line import Parser, run
from simcse_pl.utils.errors import did_you_mean

COMMANDS = {
    "train": "train an encoder; options are Hydra's",
    "evaluate": "measure an encoder; options are Hydra's",
    "report": "tables, figures or a page of encoders, runs and sweeps",
    "encode": "write the vectors of sentences",
    "similarity": "compare two sentences, or the pairs of a file",
    "index": "index the sentences of a file for search",
    "search": "search an index or a file of sentences",
    "serve": "open a local page to search sentences, with one encoder or two side by side",
    "export": "write an encoder for sentence-transformers, ONNX or the hub",
    "info": "describe an encoder",
    "prepare": "make training files from NLI, paraphrase and Wikipedia releases",
}
HYDRA = ("train", "evaluate")
DATASETS = {
    "nli": "triplets or pairs from SNLI, MultiNLI and ANLI",
    "paraphrases": "pairs from QQP, Flickr30k or ParaNMT",
    "wikipedia": "sentences from a Wikipedia dump",
}


def main() -> None:
    """Run the `simcse` command."""
    name, rest = _choose("simcse", __doc__, COMMANDS, sys.argv[1:])
    if name in HYDRA:  # as a program of its own: Lightning starts further ranks with `python -m` and the same options
        sys.argv[1:] = rest
        runpy.run_module(f"simcse_pl.cli.{name}", run_name="__main__", alter_sys=True)
        return
    module = f"simcse_pl.cli.{name}"
    if name == "prepare":
        dataset, rest = _choose("simcse prepare", COMMANDS[name], DATASETS, rest)
        name, module = f"prepare {dataset}", f"simcse_pl.cli.prepare_{dataset}"
    command = importlib.import_module(module)  # only the chosen one, because torch takes seconds to import
    parser = Parser(prog=f"simcse {name}", description=command.__doc__)
    command.add_arguments(parser)
    run(parser, command.run, rest)


def _choose(prog: str, about: str, commands: Mapping[str, str], given: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that the first word names, and the remaining words."""
    listed = "\n".join(f"  {name:<13}{what}" for name, what in commands.items())
    parser = Parser(
        prog=prog,
        usage="%(prog)s COMMAND ...",
        description=f"{about}\n\ncommands (COMMAND --help says more):\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", default="", metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    chosen = parser.parse_args(given)
    if chosen.command not in commands:
        unknown = f"no command {chosen.command}{did_you_mean(chosen.command, commands)}"
        parser.error(unknown if chosen.command else f"give a command: {', '.join(commands)}")
    return chosen.command, chosen.rest


if __name__ == "__main__":
    main()
