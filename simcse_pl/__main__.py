"""Train, evaluate and use sentence encoders."""

import argparse
import importlib
import logging
import re
import runpy
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoints, entry_points
from importlib.util import find_spec
from typing import Any, NoReturn

from simcse_pl import __version__
from simcse_pl.utils.errors import COLUMNS, USER_ERROR_STATUS, did_you_mean
from simcse_pl.utils.terminal import end_quietly, prepare_output, report_error

HYDRA_COMMANDS = ("train", "evaluate")
COMMANDS = {
    "train": "train an encoder (takes Hydra options)",
    "evaluate": "measure an encoder (takes Hydra options)",
    "options": "explain the options of train and evaluate, and find them by words",
    "report": "compare encoders, runs and sweeps in tables and figures",
    "encode": "write the vectors of the sentences in a file",
    "similarity": "print the cosine of two sentences, or of the pairs in a file",
    "index": "encode sentences once, for several searches",
    "search": "find the sentences of an index or a file that are nearest to a query",
    "demo": "search with one encoder or two on a page in the browser",
    "mine": "find hard negatives for pairs",
    "synthesize": "make triplets from sentences by a language model",
    "merge": "average the weights of encoders, such as runs with several seeds",
    "distill-static": "make static embeddings from an encoder, in the format of model2vec",
    "show": "show what made an encoder: command, data, versions, scores",
    "export": "write an encoder for sentence-transformers or as ONNX, or push it to the hub",
    "prepare": "make training files from public datasets, or a tokenizer from text",
}
DATASETS = {
    "nli": "triplets or pairs from the files of SNLI, MultiNLI or ANLI",
    "paraphrases": "pairs from the file of QQP, Flickr30k or ParaNMT",
    "wikipedia": "sentences from a Wikipedia dump",
    "tokenizer": "a tokenizer from text, for a model with random weights",
}


def main() -> None:
    """Run the `simcse` command."""
    installed = {entry.name: f"of the package {entry.value.partition('.')[0]}" for entry in _installed()}
    name, rest = _choose("simcse", __doc__, {**COMMANDS, **installed}, sys.argv[1:])
    if name in HYDRA_COMMANDS:
        sys.argv[1:] = ["--config-name", name, *rest]
        # As a script, because Lightning starts more ranks by `python -m` with the same arguments.
        runpy.run_module("simcse_pl.cli", run_name="__main__", alter_sys=True)
        return
    if name == "prepare":
        dataset, rest = _choose("simcse prepare", f"{COMMANDS[name].capitalize()}.", DATASETS, rest)
        name = f"prepare {dataset}"
    command = find_command(name)  # only this one: importing torch takes seconds
    parser = Parser(prog=f"simcse {name}", description=command.__doc__)
    command.add_arguments(parser)
    logging.basicConfig(format="%(message)s")  # on standard error
    logging.getLogger("simcse_pl").setLevel(logging.INFO)
    run(parser, command.run, rest)


def find_command(name: str) -> Any:
    """Return the module of a command, which has `add_arguments(parser)`, `run(arguments)` and a docstring.

    It is in one of our two folders of commands, or in a package with an entry point `simcse_pl.commands`.
    """
    for entry in _installed().select(name=name):
        return entry.load()
    modules = [f"simcse_pl.{folder}.{re.sub('[ -]', '_', name)}" for folder in ("tools", "lab")]
    return importlib.import_module(next(filter(find_spec, modules)))


def _installed() -> EntryPoints:
    return entry_points(group="simcse_pl.commands")


def _choose(prog: str, about: str, commands: Mapping[str, str], arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command that the first argument names, and the remaining arguments."""
    listed = "\n".join(f"  {name:<16}{summary}" for name, summary in commands.items())
    parser = Parser(
        prog=prog,
        usage="%(prog)s COMMAND ...",
        description=f"{about}\n\ncommands (`{prog} COMMAND --help` explains one):\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"simcse_pl {__version__}")
    parser.add_argument("command", nargs="?", default="", metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.command not in commands:
        unknown = f"no command {chosen.command}{did_you_mean(chosen.command, commands)}"
        parser.error(unknown if chosen.command else f"give a command: {', '.join(commands)}")
    return chosen.command, chosen.rest


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports an error in one line, with the nearest option's name."""

    def error(self, message: str) -> NoReturn:
        """Exit with the message."""
        what, _, unknown = message.partition("unrecognized arguments: ")
        if not what and unknown.startswith("-"):
            name = unknown.split()[0].partition("=")[0]
            message = f"no option {name}{did_you_mean(name, self._option_string_actions)}"
        self.exit(USER_ERROR_STATUS, f"error: {message} (--help lists all)\n")

    def as_typed(self, message: str) -> str:
        """Return a message with options as the user types them: `--pooling cls` for `pooling=cls`."""
        if "--columns" in self._option_string_actions:
            message = message.replace(COLUMNS, "--columns NAME NAME")

        def typed(found: re.Match[str]) -> str:
            name = f"--{found[1].replace('_', '-')}"
            return f"{name} " if name in self._option_string_actions else found[0]

        return re.sub(r"(?<![\w.])(\w+)=", typed, message)


def run(parser: Parser, work: Callable[[argparse.Namespace], Any], given: Sequence[str] | None = None) -> None:
    """Call `work` with the parsed arguments. An error is one line, or a traceback with `--debug`."""
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    arguments = parser.parse_intermixed_args(given)
    prepare_output()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as in a shell, but it cleans up
    try:
        work(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        end_quietly()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        sys.exit(report_error(error, arguments.debug, "--debug", parser.as_typed))


if __name__ == "__main__":
    main()
