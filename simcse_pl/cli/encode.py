"""Encode sentences: from a file or standard input into vectors, part by part."""

import argparse

from simcse_pl.cli.common import STANDARD, add_column, add_encoder, encoder_of, in_parts
from simcse_pl.cli.vector_files import check_out, vector_writer
from simcse_pl.data.readers.row_reader import iterate_sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    parser.add_argument(
        "sentences",
        nargs="?",
        default=STANDARD,
        metavar="FILE",
        help=".txt (a sentence a line, blank lines left out), .csv, .tsv, .jsonl or .parquet; - is standard input, as "
        "text, and the default",
    )
    parser.add_argument(
        "--out",
        default=STANDARD,
        metavar="OUT",
        help=".npy (vectors alone), .parquet or .jsonl (each with its sentence); - is .jsonl on standard output, and "
        "the default",
    )
    add_column(parser)
    parser.add_argument("--no-normalize", action="store_true", help="leave the vectors' lengths as they are")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    check_out(arguments.out)
    rows = iterate_sentences(arguments.sentences, arguments.column)
    simcse = encoder_of(arguments)
    with vector_writer(arguments.out, simcse.encoder.dim) as write:
        for part in in_parts(rows, "sentences encoded"):
            write(part, simcse.encode(part, return_numpy=True, normalize_to_unit=not arguments.no_normalize))
