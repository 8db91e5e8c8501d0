"""Find the sentences of an index or of a file that are nearest to queries."""

import argparse
import sys

import pandas as pd

from simcse_pl.cli.common import add_column, add_encoder, json_line, load_or_build_index, load_simcse
from simcse_pl.data.readers.row_reader import read_sentences
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import show

_DIGITS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    parser.add_argument("corpus", metavar="CORPUS", help="the folder of an index, or a file of sentences")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="one or several queries")
    about = "file of queries, one per line, instead of QUERY; -: standard input"
    parser.add_argument("--queries-from", metavar="FILE", help=about)
    add_column(parser)
    about = "largest number of sentences per query (default: %(default)s)"
    parser.add_argument("--top-k", type=int, default=5, metavar="N", help=about)
    parser.add_argument("--threshold", type=float, metavar="X", help="minimum cosine similarity (default: no minimum)")
    about = "print lines of JSON (default if the output is not a terminal)"
    parser.add_argument("--json", action="store_true", help=about)


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    if bool(arguments.queries) == bool(arguments.queries_from):
        raise UserError("give either queries or --queries-from FILE")
    queries = arguments.queries or read_sentences(arguments.queries_from)
    simcse = load_simcse(arguments)
    load_or_build_index(simcse, arguments.corpus, arguments.column)
    results = simcse.search(queries, threshold=arguments.threshold, top_k=arguments.top_k)
    rows = [
        {"query": query, "sentence": near.sentence, "similarity": round(near.similarity, _DIGITS)}
        for query, neighbours in zip(queries, results, strict=True)
        for near in neighbours
    ]
    if arguments.json or not sys.stdout.isatty():
        sys.stdout.writelines(map(json_line, rows))
    else:
        show(Table("search", f"Nearest in {arguments.corpus}", pd.DataFrame(rows), _DIGITS).printed())
