"""Encode the sentences of a file and save their vectors as an index. A search in it encodes only the queries."""

import argparse
from pathlib import Path
from typing import Any

from simcse_pl.tools.common import add_column, add_encoder, layout, load_simcse
from simcse_pl.tools.sentence_index import SETTINGS_FILE
from simcse_pl.utils.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(
        parser, prompt="the sentences (default: document, if the encoder has it; with --add, that of the index)"
    )
    text = "sentences: .txt, .csv, .tsv, .json, .jsonl or .parquet; -: standard input"
    parser.add_argument("sentences", metavar="FILE", help=text)
    parser.add_argument("folder", metavar="FOLDER", help="folder of the index")
    add_column(parser)
    text = "add the sentences to the index in FOLDER"
    parser.add_argument("--add", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.folder)
    if (folder / SETTINGS_FILE).exists() and not arguments.add:
        raise UserError(f"{folder} contains an index: use --add to add to it, or give another directory")
    simcse = load_simcse(arguments)
    options: Any = {"column": arguments.column, "layout": layout(arguments)}
    if arguments.add:
        simcse.load_index(folder)
        print(f"{simcse.add_to_index(arguments.sentences, **options)} new sentences")
    else:
        simcse.build_index(arguments.sentences, **options, prompt_name=arguments.prompt_name)
    simcse.save_index(folder)
    print(f"{len(simcse.index or ())} sentences indexed in {folder}")
