"""Average the weights of encoders that were fine-tuned from the same model, such as runs with several seeds."""

import argparse

from simcse_pl.cli.common import add_encoder, load_selected, new_folder
from simcse_pl.models.adapters import has_adapter, merge_adapter
from simcse_pl.models.merging import difference, merge
from simcse_pl.utils.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, "encoders", computes=False, nargs="+")
    parser.add_argument("folder", metavar="FOLDER", help="output folder; it must not contain files")
    text = "weight of each encoder in the mean (default: equal ones)"
    parser.add_argument("--weights", nargs="+", type=float, metavar="X", help=text)


def run(arguments: argparse.Namespace) -> None:
    folder, names, weights = new_folder(arguments.folder), arguments.encoders, arguments.weights
    if weights and (len(weights) != len(names) or sum(weights) <= 0):
        raise UserError("--weights: give one number per encoder, with a sum above 0")
    encoders = [load_selected(name, arguments) for name in names]
    for encoder, name in zip(encoders, names, strict=True):
        if has_adapter(encoder.backbone):
            merge_adapter(encoder.backbone)
        if differing := difference(encoders[0], encoder):
            raise UserError(f"{names[0]} and {name} cannot be averaged: they differ in {differing}")
    merge(encoders, weights).save_pretrained(folder)
    print(folder)
