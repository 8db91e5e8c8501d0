"""Encode the sentences of a file and save their vectors as an index. A search in it encodes only the queries."""

import argparse
import logging
from pathlib import Path

import numpy as np

from simcse_pl.tools.common import add_column, add_encoder, add_id, load_simcse, read_with_ids
from simcse_pl.tools.sentence_index import SETTINGS_FILE
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import check_is_file, locked

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "the sentences (default: document, if the encoder has it; with --add, that of the index)"
    add_encoder(parser, prompt=text)
    text = "sentences: .txt, .csv, .tsv, .json, .jsonl or .parquet; -: standard input"
    parser.add_argument("sentences", metavar="FILE", help=text)
    parser.add_argument("folder", metavar="FOLDER", help="folder of the index")
    add_column(parser)
    add_id(parser)
    text = "the vectors of FILE that `simcse encode` has written, which are then not computed again"
    parser.add_argument("--vectors", metavar="FILE.npy", help=text)
    parser.add_argument("--add", action="store_true", help="add the sentences to the index in FOLDER")


def run(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.folder)
    if arguments.add:
        check_is_file(folder / SETTINGS_FILE)
    elif (folder / SETTINGS_FILE).exists():
        raise UserError(f"{folder} contains an index: use --add to add to it, or give another directory")
    with locked(folder):  # the sentences of two commands at once would be lost
        _write(arguments, folder)


def _write(arguments: argparse.Namespace, folder: Path) -> None:
    """Build an index, or add to one, and save it."""
    sentences, ids = read_with_ids(arguments.sentences, arguments)
    with reraise_as(f"--vectors {arguments.vectors}: it should be a file that simcse encode wrote"):
        vectors = np.load(arguments.vectors) if arguments.vectors else None
    simcse = load_simcse(arguments)
    if arguments.add:
        simcse.load_index(folder)
        assert simcse.index
        if arguments.prompt_name not in (None, simcse.index.prompt_name):
            own = f"the prompt of {folder} is {simcse.index.prompt_name or 'none'}"
            raise UserError(f"--prompt-name {arguments.prompt_name}: {own}: leave it out")
        print(f"{simcse.add_to_index(sentences, vectors=vectors)} new sentences")
    else:
        simcse.build_index(sentences, prompt_name=arguments.prompt_name, vectors=vectors)
    assert simcse.index
    simcse.index.ids = ids | simcse.index.ids
    if arguments.add and arguments.id is None and len({*simcse.index.ids.values()}) < len(simcse.index.ids):
        log.warning("%s: the numbers of rows are the ids of several files: name a column of ids by --id", folder)
    simcse.save_index(folder)
    if repeated := len(sentences) - len(ids):
        print(f"{repeated} rows repeat a sentence of the file")
    print(f"{len(simcse.index)} sentences indexed in {folder}")
