"""Extract the sentences of a Wikipedia dump in any language."""

import argparse
import os

from simcse_pl.data.prepare.wikipedia import extract


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    parser.add_argument("dump", metavar="DUMP", help="a pages-articles dump, .xml or .xml.bz2")
    parser.add_argument(
        "out", metavar="OUT", help="the text file to write: a sentence a line, a blank line between articles"
    )
    parser.add_argument("--language", help="ISO 639 code of the text (default: from the dump's name)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="number of processes (all cores)")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    articles, sentences = extract(arguments.dump, arguments.out, arguments.language, max(1, arguments.processes))
    print(f"{sentences} sentences of {articles} articles in {arguments.out}")
