"""Make a file of training pairs from the released file of QQP, Flickr30k or ParaNMT.

The pairs are in the order of the file, which may be gzipped. Rows that cannot be read are left out and counted.
"""

import argparse
from pathlib import Path

from simcse_pl.data.prepare.conversion import ConversionStats, check_paths, write_csv
from simcse_pl.data.prepare.paraphrases import CORPORA
from simcse_pl.utils.terminal import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "the dataset: qqp (duplicate questions), flickr30k (all pairs of captions of an image) or paranmt"
    parser.add_argument("corpus", choices=CORPORA, metavar="CORPUS", help=text)
    text = (
        "its file: quora_duplicate_questions.tsv or GLUE's train.tsv; results_20130124.token or Kaggle's results.csv; "
        "para-nmt-5m-processed.txt or para-nmt-50m.txt"
    )
    parser.add_argument("file", metavar="FILE", help=text)
    parser.add_argument("out", metavar="OUT", help="output file (.csv) with the columns anchor and positive")


def run(arguments: argparse.Namespace) -> None:
    file, out, stats = Path(arguments.file), Path(arguments.out), ConversionStats()
    check_paths([file], out)
    written = write_csv(out, ("anchor", "positive"), CORPORA[arguments.corpus](file, stats), stats)
    show(stats.table(arguments.corpus).printed())
    print(f"{written} pairs in {arguments.out}")
