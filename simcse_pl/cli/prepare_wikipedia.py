"""Extract the sentences of a Wikipedia dump in any language."""

import argparse
import os

from simcse_pl.data.prepare.wikipedia import extract


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", metavar="DUMP", help="dump of the articles: a file ...-pages-articles.xml or .xml.bz2")
    text = "output file (.txt) with one sentence per line and a blank line between articles"
    parser.add_argument("out", metavar="OUT", help=text)
    parser.add_argument("--language", help="ISO 639 code of the language (default: from the file name of the dump)")
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--processes", type=int, default=cores, metavar="N", help="number of processes (default: all cores)"
    )


def run(arguments: argparse.Namespace) -> None:
    articles, sentences = extract(arguments.dump, arguments.out, arguments.language, max(1, arguments.processes))
    print(f"{sentences} sentences of {articles} articles in {arguments.out}")
