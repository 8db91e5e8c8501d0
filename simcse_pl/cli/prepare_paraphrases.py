"""Make a file of training pairs from the released file of QQP, Flickr30k or ParaNMT."""

import argparse

from simcse_pl.data.prepare.paraphrases import CORPORA, convert
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
    stats, written = convert(arguments.corpus, arguments.file, arguments.out)
    show(stats.table(arguments.corpus).printed())
    print(f"{written} pairs in {arguments.out}")
