"""Find the sentences of an index or of a file that are nearest to queries."""

import argparse
import sys
from pathlib import Path

from simcse_pl.data.rows import iterate_sentences
from simcse_pl.tools.common import add_column, add_encoder, json_line, layout, load_simcse
from simcse_pl.utils.files import STANDARD


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, prompt="the queries (default: query, if the encoder has it)")
    parser.add_argument("corpus", metavar="CORPUS", help="the folder of an index, or a file of sentences")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="queries (default: the lines of standard input)")
    add_column(parser)
    text = "largest number of sentences per query (default: %(default)s)"
    parser.add_argument("--top-k", type=int, default=5, metavar="N", help=text)
    parser.add_argument("--threshold", type=float, metavar="X", help="minimum cosine similarity (default: no minimum)")


def run(arguments: argparse.Namespace) -> None:
    queries = arguments.queries or list(iterate_sentences(STANDARD))
    simcse = load_simcse(arguments)
    if Path(arguments.corpus).is_dir():
        simcse.load_index(arguments.corpus)
    else:
        simcse.build_index(arguments.corpus, column=arguments.column, layout=layout(arguments))
    options = {name: getattr(arguments, name) for name in ("threshold", "top_k", "prompt_name")}
    results = simcse.search(queries, **options)
    as_json = not sys.stdout.isatty()
    for query, neighbours in zip(queries, results, strict=True):
        if not as_json:
            print(query)
        for sentence, similarity in neighbours:
            row = {"query": query, "sentence": sentence, "similarity": round(similarity, 4)}
            sys.stdout.write(json_line(row) if as_json else f"  {similarity:.4f}  {sentence}\n")
