"""Find the sentences of an index or of a file that are nearest to queries."""

import argparse
import sys
from pathlib import Path
from typing import Any

from simcse_pl.data.rows import iterate_rows, iterate_sentences
from simcse_pl.tools import common
from simcse_pl.tools.sentence_index import SETTINGS_FILE
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import STANDARD
from simcse_pl.utils.tensors import cosine_similarity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_encoder(parser, prompt="the queries (default: query, if the encoder has it)")
    parser.add_argument("corpus", metavar="CORPUS", help="the folder of an index, or a file of sentences")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="queries (default: the lines of standard input)")
    common.add_column(parser)
    text = "largest number of sentences per query (default: %(default)s)"
    parser.add_argument("--top-k", type=int, default=5, metavar="N", help=text)
    parser.add_argument("--threshold", type=float, metavar="X", help="minimum cosine similarity (default: no minimum)")


def run(arguments: argparse.Namespace) -> None:
    queries = arguments.queries or list(iterate_sentences(STANDARD))
    simcse = common.load_simcse(arguments)
    if Path(arguments.corpus).is_dir():
        simcse.load_index(arguments.corpus)
    else:
        simcse.build_index(arguments.corpus, column=arguments.column, layout=common.layout(arguments))
    options = {name: getattr(arguments, name) for name in ("threshold", "top_k", "prompt_name")}
    results = simcse.search(queries, **options)
    as_json = not sys.stdout.isatty()
    for query, neighbours in zip(queries, results, strict=True):
        if not as_json:
            print(query)
        for sentence, similarity in neighbours:
            row = {"query": query, "sentence": sentence, "similarity": round(similarity, 4)}
            sys.stdout.write(common.json_line(row) if as_json else f"  {similarity:.4f}  {sentence}\n")


class Index:
    """Encode the sentences of a file and save their vectors as an index. A search in it encodes only the queries."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        common.add_encoder(
            parser, prompt="the sentences (default: document, if the encoder has it; with --add, that of the index)"
        )
        text = "sentences: .txt, .csv, .tsv, .json, .jsonl or .parquet; -: standard input"
        parser.add_argument("sentences", metavar="FILE", help=text)
        parser.add_argument("folder", metavar="FOLDER", help="folder of the index")
        common.add_column(parser)
        text = "add the sentences to the index in FOLDER"
        parser.add_argument("--add", action="store_true", help=text)

    @staticmethod
    def run(arguments: argparse.Namespace) -> None:
        folder = Path(arguments.folder)
        if (folder / SETTINGS_FILE).exists() and not arguments.add:
            raise UserError(f"{folder} contains an index: use --add to add to it, or give another directory")
        simcse = common.load_simcse(arguments)
        options: Any = {"column": arguments.column, "layout": common.layout(arguments)}
        if arguments.add:
            simcse.load_index(folder)
            print(f"{simcse.add_to_index(arguments.sentences, **options)} new sentences")
        else:
            simcse.build_index(arguments.sentences, **options, prompt_name=arguments.prompt_name)
        simcse.save_index(folder)
        print(f"{len(simcse.index or ())} sentences indexed in {folder}")


class Similarity:
    """Print the cosine similarity of two sentences, or of the pairs in a file."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        common.add_encoder(parser)
        parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="two sentences")
        text = ".csv, .tsv, .jsonl or .parquet file of pairs, instead of two sentences"
        parser.add_argument("--pairs", metavar="FILE", help=text)
        common.add_columns(parser)

    @staticmethod
    def run(arguments: argparse.Namespace) -> None:
        if len(arguments.sentences) != (0 if arguments.pairs else 2):
            raise UserError("give either two sentences or --pairs FILE")
        simcse = common.load_simcse(arguments)
        if arguments.sentences:
            print(f"{simcse.similarity(*arguments.sentences):.4f}")
            return
        rows = (row for row, _ in iterate_rows(arguments.pairs, arguments.columns, layout=common.layout(arguments)))
        for chunk in common.chunks_with_progress(rows, "pairs compared"):
            first, second = (simcse.encode(list(side), normalize_to_unit=False) for side in zip(*chunk, strict=True))
            for pair, similarity in zip(chunk, cosine_similarity(first, second).tolist(), strict=True):
                sys.stdout.write(
                    common.json_line({"first": pair[0], "second": pair[1], "similarity": round(similarity, 6)})
                )
