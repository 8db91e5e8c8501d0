"""Encode the sentences of a file and save their vectors as an index. A search in it encodes only the queries."""

import argparse
from pathlib import Path

import pandas as pd

from simcse_pl.cli.common import add_column, add_encoder, load_simcse
from simcse_pl.data.readers.row_reader import read_sentences
from simcse_pl.inference.quantization import FLOAT32, PRECISIONS, stored_width
from simcse_pl.inference.sentence_index import RESCORE, SETTINGS_FILE, SentenceIndex, recall
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import show

_MEMORY = "MB per million vectors"  # and bytes per vector


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    parser.add_argument(
        "sentences", metavar="FILE", help="sentences: .txt, .csv, .tsv, .jsonl or .parquet; -: standard input"
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder of the index")
    add_column(parser)
    parser.add_argument("--add", action="store_true", help="add the sentences to the existing index in FOLDER")
    about = f"type of the vectors (default: {FLOAT32}; with --add: that of the index)"
    parser.add_argument("--precision", choices=PRECISIONS, help=about)
    about = f"find N x top_k candidates, then rank them by cosine; not for {FLOAT32} (default: {RESCORE})"
    parser.add_argument("--rescore", type=int, metavar="N", help=about)


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    folder = Path(arguments.folder)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: give a directory for the index")
    if (folder / SETTINGS_FILE).exists() and not arguments.add:
        raise UserError(f"{folder} contains an index: use --add to add to it, or give another directory")
    if arguments.rescore is not None and (arguments.add or arguments.precision in (None, FLOAT32)):
        raise UserError("--rescore needs --precision int8, uint8 or binary, and a new index (no --add)")
    if arguments.rescore is not None and arguments.rescore < 1:
        raise UserError(f"--rescore {arguments.rescore}: it must be at least 1")
    sentences = read_sentences(arguments.sentences, arguments.column)
    simcse = load_simcse(arguments)
    precision, exact = arguments.precision or FLOAT32, None
    if arguments.add:
        simcse.load_index(folder)
        own = simcse.index.quantizer.precision if simcse.index else FLOAT32
        if arguments.precision not in (None, own):
            raise UserError(f"--precision {precision}: the vectors in {folder} are {own}: leave out the option")
        print(f"{simcse.add_to_index(sentences)} new sentences")
    else:
        stored_width(precision, simcse.encoder.dim)
        simcse.build_index(sentences)
        if precision != FLOAT32 and (exact := simcse.index):
            simcse.index = exact.quantized(precision, arguments.rescore or RESCORE)
    simcse.save_index(folder)
    print(f"{len(simcse.index or ())} sentences indexed in {folder}")
    if exact and simcse.index:
        show(_comparison(simcse.index, exact).printed())


def _comparison(index: SentenceIndex, exact: SentenceIndex) -> Table:
    rows = [
        {"precision": name, _MEMORY: one.vectors[0].nbytes, "recall@10": share}
        for name, one, share in ((FLOAT32, exact, 1.0), (index.quantizer.precision, index, recall(index, exact)))
    ]
    notes = [f"queries: at most 1,000 of the sentences, without their own entries; --rescore {index.rescore}"]
    return Table("recall", "Quantized vectors against float32", pd.DataFrame(rows), {_MEMORY: 0, "recall@10": 4}, notes)
