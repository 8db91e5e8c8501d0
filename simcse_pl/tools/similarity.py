"""Print the cosine similarity of two sentences, or of the pairs in a file."""

import argparse
import sys

from simcse_pl.data.rows import ReadOptions, iterate_rows
from simcse_pl.tools.common import add_columns, add_encoder, chunks_with_progress, json_line, layout, load_simcse
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import cosine_similarity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser)
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="two sentences")
    parser.add_argument("--pairs", metavar="FILE", help="file of pairs instead: .csv, .tsv, .jsonl or .parquet")
    add_columns(parser)


def run(arguments: argparse.Namespace) -> None:
    if len(arguments.sentences) != (0 if arguments.pairs else 2):
        raise UserError("give either two sentences or --pairs FILE")
    simcse = load_simcse(arguments)
    if arguments.sentences:
        print(f"{simcse.similarity(*arguments.sentences):.4f}")
        return
    how = ReadOptions(columns=arguments.columns, **vars(layout(arguments)))
    rows = (row for row, _ in iterate_rows(arguments.pairs, how, first=2))
    for chunk in chunks_with_progress(rows, "comparing"):
        first, second = (simcse.encode(list(side), normalize_to_unit=False) for side in zip(*chunk, strict=True))
        for pair, similarity in zip(chunk, cosine_similarity(first, second).tolist(), strict=True):
            sys.stdout.write(json_line({"first": pair[0], "second": pair[1], "similarity": round(similarity, 6)}))
