"""Print the cosine similarity of two sentences, or of the pairs in a file."""

import argparse
import sys

from simcse_pl.cli.common import STANDARD, add_encoder, chunks_with_progress, column, json_line, load_simcse
from simcse_pl.data.readers.row_reader import iterate_rows
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import cosine_similarity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="two sentences")
    about = ".csv, .tsv, .jsonl or .parquet file of pairs, instead of two sentences"
    parser.add_argument("--pairs", metavar="FILE", help=about)
    about = "names or positions of the two columns of --pairs (default: 0 1)"
    parser.add_argument("--columns", nargs=2, type=column, default=[0, 1], metavar="COLUMN", help=about)


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    if len(arguments.sentences) != (0 if arguments.pairs else 2):
        raise UserError("give either two sentences or --pairs FILE")
    if arguments.sentences:
        print(f"{load_simcse(arguments).similarity(*arguments.sentences):.4f}")
        return
    if arguments.pairs == STANDARD:
        raise UserError("--pairs takes a file: standard input has no columns")
    rows = iterate_rows(arguments.pairs, arguments.columns)
    simcse = load_simcse(arguments)
    for chunk in chunks_with_progress((row for row, _ in rows), "pairs compared"):
        first, second = (simcse.encode(list(side), normalize_to_unit=False) for side in zip(*chunk, strict=True))
        for pair, similarity in zip(chunk, cosine_similarity(first, second).tolist(), strict=True):
            sys.stdout.write(json_line({"first": pair[0], "second": pair[1], "similarity": round(similarity, 6)}))
