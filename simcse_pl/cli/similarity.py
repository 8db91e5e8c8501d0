"""Compare sentences: the cosine similarity of two, or of the pairs in a file."""

import argparse
import sys

from simcse_pl.cli.common import STANDARD, add_encoder, encoder_of, in_parts, json_line
from simcse_pl.data.readers.row_reader import iterate_rows, with_warning
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import cosine_similarity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="two of them, whose similarity is printed")
    parser.add_argument(
        "--pairs", metavar="FILE", help="in place of two sentences a .csv, .tsv, .jsonl or .parquet file of them"
    )
    parser.add_argument("--columns", nargs=2, default=["0", "1"], metavar="COLUMN", help="of the pairs (0 1)")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    if (len(arguments.sentences) == 2) == bool(arguments.pairs) or len(arguments.sentences) not in (0, 2):
        raise UserError("similarity takes two sentences, or --pairs FILE")
    if arguments.sentences:
        print(f"{encoder_of(arguments).similarity(*arguments.sentences):.4f}")
        return
    if arguments.pairs == STANDARD:
        raise UserError("--pairs takes a file: standard input has no columns")
    columns = [int(column) if column.isdecimal() else column for column in arguments.columns]
    rows = iterate_rows(arguments.pairs, columns)
    simcse = encoder_of(arguments)
    for part in in_parts((row for row, _ in with_warning(rows)), "pairs compared"):
        first, second = (simcse.encode(list(side), normalize_to_unit=False) for side in zip(*part, strict=True))
        for pair, similarity in zip(part, cosine_similarity(first, second).tolist(), strict=True):
            sys.stdout.write(json_line({"first": pair[0], "second": pair[1], "similarity": round(similarity, 6)}))
