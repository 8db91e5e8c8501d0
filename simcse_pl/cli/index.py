"""Index the sentences of a file, so that a search encodes only the queries."""

import argparse
from pathlib import Path

from simcse_pl.cli.common import add_column, add_encoder, load_simcse
from simcse_pl.data.readers.row_reader import read_sentences
from simcse_pl.inference.sentence_index import SETTINGS_FILE
from simcse_pl.utils.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    parser.add_argument("sentences", metavar="FILE", help=".txt, .csv, .tsv, .jsonl or .parquet; -: standard input")
    parser.add_argument("folder", metavar="FOLDER", help="output directory")
    add_column(parser)
    parser.add_argument("--add", action="store_true", help="add the sentences to the index in FOLDER")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    folder = Path(arguments.folder)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: give a directory for the index")
    if (folder / SETTINGS_FILE).exists() and not arguments.add:
        raise UserError(f"{folder} contains an index: use --add to add to it, or give another directory")
    sentences = read_sentences(arguments.sentences, arguments.column)
    simcse = load_simcse(arguments)
    if arguments.add:
        simcse.load_index(folder)
        print(f"{simcse.add_to_index(sentences)} new sentences")
    else:
        simcse.build_index(sentences)
    simcse.save_index(folder)
    print(f"{len(simcse.index or ())} sentences indexed in {folder}")
