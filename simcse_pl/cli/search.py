"""Search an index, or a file of sentences, for those nearest to queries."""

import argparse
import sys
from pathlib import Path

import pandas as pd

from simcse_pl.cli.common import add_column, add_encoder, check_column, encoder_of, json_line
from simcse_pl.data.readers.row_reader import read_sentences
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tables import Table, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    parser.add_argument("corpus", metavar="CORPUS", help="the folder of an index, or a file of sentences")
    parser.add_argument("queries", nargs="*", metavar="QUERY")
    parser.add_argument("--queries-from", metavar="FILE", help="in place of QUERY: a query a line; - is standard input")
    add_column(parser)
    parser.add_argument("--top-k", type=int, default=5, metavar="N", help="sentences shown of a query (%(default)s)")
    parser.add_argument("--threshold", type=float, metavar="X", help="the least similarity of a sentence")
    parser.add_argument("--json", action="store_true", help="lines of JSON, as where the output is no terminal")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    if bool(arguments.queries) == bool(arguments.queries_from):
        raise UserError("search takes queries, or --queries-from FILE")
    queries = arguments.queries or read_sentences(arguments.queries_from)
    check_column(arguments.column, [arguments.corpus])
    in_folder = Path(arguments.corpus).is_dir()
    corpus = [] if in_folder else read_sentences(arguments.corpus, arguments.column)
    simcse = encoder_of(arguments)
    if in_folder:
        simcse.load_index(arguments.corpus)
    else:
        simcse.build_index(corpus)
    found = simcse.search(queries, threshold=arguments.threshold, top_k=arguments.top_k)
    rows = [
        {"query": query, "sentence": one.sentence, "similarity": round(one.similarity, 4)}
        for query, neighbours in zip(queries, found, strict=True)
        for one in neighbours
    ]
    if arguments.json or not sys.stdout.isatty():
        sys.stdout.writelines(map(json_line, rows))
    else:
        frame = pd.DataFrame(rows, columns=["query", "sentence", "similarity"])
        show(Table("search", f"Nearest in {arguments.corpus}", frame, 4).printed())
