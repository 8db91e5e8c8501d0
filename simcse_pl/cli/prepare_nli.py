"""Make a training file from SNLI, MultiNLI or ANLI as published."""

import argparse

from simcse_pl.data.prepare.nli import KINDS, convert
from simcse_pl.data.readers.row_reader import ON_INVALID_ROW
from simcse_pl.utils.tables import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    parser.add_argument(
        "kind",
        choices=KINDS,
        metavar="KIND",
        help="triplets (premise, entailment, and a contradiction of the same premise drawn for it); two_hard_negatives "
        "(a neutral hypothesis besides); entailment, neutral, contradiction or all (pairs of these labels); labelled "
        "(premise, hypothesis, label)",
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="snli_1.0_train.jsonl, multinli_1.0_train.jsonl, ANLI's files"
    )
    parser.add_argument("out", metavar="OUT", help="the csv file to write")
    parser.add_argument("--seed", type=int, default=42, help="for drawing hard negatives (%(default)s)")
    parser.add_argument(
        "--on-invalid-row", choices=ON_INVALID_ROW, default="error", help="stop at a damaged row, or drop and count it"
    )


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    stats, written = convert(arguments.kind, arguments.files, arguments.out, arguments.seed, arguments.on_invalid_row)
    show(stats.table(arguments.kind).printed())
    print(f"{written} rows in {arguments.out}")
