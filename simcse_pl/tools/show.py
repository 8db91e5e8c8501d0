"""Show what made an encoder: the command of its run, its settings, data and versions, and its scores."""

import argparse
from pathlib import Path

from simcse_pl.models.saved_encoder import TRAINING_FILE
from simcse_pl.run_table import printed_settings, run_table
from simcse_pl.tools.model_card import read_training
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.terminal import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("encoder", metavar="FOLDER", help="folder of a run, its encoder or an export, or a checkpoint")


def run(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.encoder)
    training = read_training(str(folder / "encoder" if (folder / "encoder").is_dir() else folder))
    if training is None:
        raise UserError(f"{folder} has no {TRAINING_FILE}, and is in no folder of a run: nothing says what made it")
    for name, value in {"command": training.command, **printed_settings(training.settings)}.items():
        print(f"{name:<13} {value}")
    show(run_table(training).printed())
