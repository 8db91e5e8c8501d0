"""Extract the sentences of a Wikipedia dump in any language."""

import argparse
import os

from simcse_pl.data.prepare.conversion import USED
from simcse_pl.data.prepare.wikipedia import SCRIPTS, extract
from simcse_pl.utils.terminal import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", metavar="DUMP", help="dump of the articles: a file ...-pages-articles.xml or .xml.bz2")
    text = "output file (.txt) with one sentence per line and a blank line between articles"
    parser.add_argument("out", metavar="OUT", help=text)
    parser.add_argument("--language", help="ISO 639 code of the language (default: from the file name of the dump)")
    text = "fewest characters of a sentence; a Chinese, Japanese or Korean one counts as 3 (default: %(default)s)"
    parser.add_argument("--min-length", type=int, default=20, metavar="N", help=text)
    text = "convert Chinese text to this script by OpenCC: pip install opencc (default: as it is)"
    parser.add_argument("--script", choices=SCRIPTS, help=text)
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--processes", type=int, default=cores, metavar="N", help="number of processes (default: all cores)"
    )


def run(arguments: argparse.Namespace) -> None:
    options = arguments.language, max(1, arguments.processes), arguments.min_length, arguments.script
    articles, stats = extract(arguments.dump, arguments.out, *options)
    show(stats.table("sentences").printed())
    print(f"{stats[USED]} sentences of {articles} articles in {arguments.out}")
