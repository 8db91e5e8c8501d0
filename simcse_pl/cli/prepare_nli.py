"""Make a training file from the released files of SNLI, MultiNLI or ANLI."""

import argparse

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
    text = "snli_1.0_train.jsonl, multinli_1.0_train.jsonl, or files of ANLI"
    parser.add_argument("files", nargs="+", metavar="FILE", help=text)
    parser.add_argument("out", metavar="OUT", help="output file (.csv)")
    parser.add_argument("--seed", type=int, default=42, help="seed of the random choices (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    stats, written = convert(arguments.kind, arguments.files, arguments.out, arguments.seed)
    show(stats.table(arguments.kind).printed())
    print(f"{written} rows in {arguments.out}")
