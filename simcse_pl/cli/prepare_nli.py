"""Make a training file from files of natural language inference, such as SNLI, MultiNLI, XNLI, ANLI and OCNLI."""

import argparse

from simcse_pl.cli.common import add_layout, column, layout
from simcse_pl.data.prepare.nli import KINDS, convert
from simcse_pl.utils.terminal import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind",
        choices=KINDS,
        metavar="KIND",
        help="the rows to make; triplets: premise, entailment and a random contradiction of the premise; "
        "two_hard_negatives: triplets, and a random neutral hypothesis of the premise; entailment, neutral or "
        "contradiction: pairs of a premise and a hypothesis with this label; all: pairs with any label; labelled: "
        "premise, hypothesis and label",
    )
    text = (
        "files as published, such as snli_1.0_train.jsonl, or data sets of the hub, hf://datasets/OWNER/NAME[:SUBSET]"
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help=text)
    parser.add_argument("out", metavar="OUT", help="output file (.csv)")
    text = "columns of premise, hypothesis and label, by name or position (default: those of published files)"
    parser.add_argument("--columns", nargs=3, type=column, metavar="COLUMN", help=text)
    text = "how the files write entailment, neutral and contradiction, such as 0 1 2 (default: as words or letters)"
    parser.add_argument("--labels", nargs=3, metavar="LABEL", help=text)
    text = "use only the rows with this value, such as language=de"
    parser.add_argument("--where", metavar="COLUMN=VALUE", help=text)
    add_layout(parser)
    parser.add_argument("--seed", type=int, default=42, help="seed of the random choices (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    names = ("kind", "files", "out", "seed", "columns", "labels", "where")
    options = {name: getattr(arguments, name) for name in names}
    stats, written = convert(**options, layout=layout(arguments))
    show(stats.table(arguments.kind).printed())
    print(f"{written} rows in {arguments.out}")
