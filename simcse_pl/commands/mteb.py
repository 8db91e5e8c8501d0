"""Measure an encoder on tasks of MTEB, by that package."""

import argparse
import importlib
from pathlib import Path

import pandas as pd

from simcse_pl.commands.common import add_encoder, encoder_of
from simcse_pl.errors import UserError
from simcse_pl.report.table import Table, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.commands."""
    add_encoder(parser)
    parser.add_argument("tasks", nargs="+", metavar="TASK", help="by MTEB's names, as STSBenchmark")
    parser.add_argument(
        "--senteval-dir",
        metavar="FOLDER",
        help="data/downstream of a SentEval bundle: STS12 to STS16, STSBenchmark and SICK-R are read from there, all "
        "else from the hub",
    )
    parser.add_argument("--out", metavar="FOLDER", help="that gets MTEB's own files of results")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.commands."""
    try:
        adapter = importlib.import_module("simcse_pl.export.mteb")
    except ModuleNotFoundError as error:
        raise UserError(f"mteb needs further packages ({error.name}): pip install 'simcse_pl[mteb]'") from error
    encoder = adapter.MtebEncoder(encoder_of(arguments), Path(arguments.encoder).name)
    scores = adapter.evaluate(encoder, arguments.tasks, arguments.senteval_dir, arguments.out)
    rows = [(task, metric, 100 * score) for task, (metric, score) in scores.items()]
    show(Table("mteb", "MTEB", pd.DataFrame(rows, columns=["task", "main score", "x 100"])).printed())
