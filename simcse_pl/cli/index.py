"""Index the sentences of a file, so that they are searched without encoding them again."""

import argparse
from pathlib import Path

from simcse_pl.cli.common import add_column, add_encoder, encoder_of
from simcse_pl.data.readers.row_reader import read_sentences
from simcse_pl.inference.sentence_index import SETTINGS_FILE
from simcse_pl.utils.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    parser.add_argument("sentences", metavar="FILE", help=".txt, .csv, .tsv, .jsonl or .parquet; - is standard input")
    parser.add_argument("folder", metavar="FOLDER", help="where the index is kept")
    add_column(parser)
    parser.add_argument("--add", action="store_true", help="to the index that is in the folder")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    folder = Path(arguments.folder)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: name a folder to keep the index in")
    if (folder / SETTINGS_FILE).exists() and not arguments.add:
        raise UserError(f"{arguments.folder} holds an index: say --add to add to it, or name another folder")
    sentences = read_sentences(arguments.sentences, arguments.column)
    simcse = encoder_of(arguments)
    if arguments.add:
        simcse.load_index(arguments.folder)
        new = simcse.add_to_index(sentences)
    else:
        simcse.build_index(sentences)
    simcse.save_index(arguments.folder)
    count = len(simcse.index or ())
    if arguments.add:
        print(f"{new} new sentences indexed in {arguments.folder}, {count} in all")
    else:
        print(f"{count} sentences indexed in {arguments.folder}")
