"""Make a file of training pairs from QQP, Flickr30k or ParaNMT as published."""

import argparse

from simcse_pl.data.prepare.paraphrases import CORPORA, convert
from simcse_pl.data.readers.row_reader import ON_INVALID_ROW
from simcse_pl.utils.tables import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    parser.add_argument(
        "corpus",
        choices=CORPORA,
        metavar="CORPUS",
        help="qqp (duplicate questions), flickr30k (every two captions of an image) or paranmt",
    )
    parser.add_argument(
        "file", metavar="FILE", help="quora_duplicate_questions.tsv, results_20130124.token, para-nmt-5m-processed.txt"
    )
    parser.add_argument("out", metavar="OUT", help="the csv file to write: anchor and positive")
    parser.add_argument(
        "--on-invalid-row", choices=ON_INVALID_ROW, default="error", help="stop at a damaged row, or drop and count it"
    )


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    stats, written = convert(arguments.corpus, arguments.file, arguments.out, arguments.on_invalid_row)
    show(stats.table(arguments.corpus).printed())
    print(f"{written} pairs in {arguments.out}")
