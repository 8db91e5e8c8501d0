"""Find the sentences of an index or of a file that are nearest to queries."""

import argparse
import sys
from pathlib import Path

from simcse_pl.data.rows import iterate_sentences
from simcse_pl.tools.common import add_column, add_encoder, add_id, json_line, load_simcse, read_with_ids
from simcse_pl.utils.files import STANDARD
from simcse_pl.utils.terminal import integer, real


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, prompt="the queries (default: query, if the encoder has it)")
    parser.add_argument("corpus", metavar="CORPUS", help="the folder of an index, or a file of sentences")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="queries (default: lines of standard input)")
    add_column(parser)
    add_id(parser)
    text = "largest number of sentences per query (default: %(default)s)"
    parser.add_argument("--top-k", type=integer, default=5, metavar="N", help=text)
    parser.add_argument("--threshold", type=real, metavar="X", help="lowest cosine similarity (default: none)")


def run(arguments: argparse.Namespace) -> None:
    # A mistake in the name or the column of a file costs no time before the encoder is loaded.
    given = None if Path(arguments.corpus).is_dir() else read_with_ids(arguments.corpus, arguments)
    queries = arguments.queries or list(iterate_sentences(STANDARD))
    simcse = load_simcse(arguments)
    if given is None:
        simcse.load_index(arguments.corpus)
    else:
        simcse.build_index(given[0])
    options = {name: getattr(arguments, name) for name in ("threshold", "top_k", "prompt_name")}
    results = simcse.search(queries, **options)
    assert simcse.index
    ids = given[1] if given else simcse.index.ids
    as_json = not sys.stdout.isatty()
    for query, neighbours in zip(queries, results, strict=True):
        if not as_json:
            print(query)
        for sentence, similarity in neighbours:
            row = {"query": query, "id": ids.get(sentence), "sentence": sentence}
            line = f"  {similarity:.4f}  {ids.get(sentence, '–')}  {sentence}\n"
            sys.stdout.write(json_line(row | {"similarity": round(similarity, 4)}) if as_json else line)
