"""Average the weights of encoders that were fine-tuned from the same model, such as runs with several seeds."""

import argparse
import os

from simcse_pl.cli.common import add_encoder, load_selected, new_folder
from simcse_pl.data.evaluator import VALIDATION
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.models.adapters import has_adapter, merge_adapter
from simcse_pl.models.merging import difference, greedy_soup, merge
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, "encoders", computes=False, nargs="+")
    parser.add_argument("folder", metavar="FOLDER", help="output folder; it must not contain files")
    which = parser.add_mutually_exclusive_group()
    text = "weight of each encoder in the mean (default: equal ones)"
    which.add_argument("--weights", nargs="+", type=float, metavar="X", help=text)
    text = "keep, from the best encoder on, those with which Spearman's correlation of the mean does not fall on DATA: "
    text += "a file of scored pairs, or sources as in data.validation of `simcse train` (default: STS-B's dev split)"
    which.add_argument("--greedy", nargs="?", const="senteval, hub, sample", metavar="DATA", help=text)


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
    if arguments.greedy:
        pairs = ScoredPairs(validation=arguments.greedy, senteval_dir=os.environ.get("SENTEVAL_DIR"))
        soup = greedy_soup(encoders, lambda encoder: 100 * pairs(encoder.encode, VALIDATION)["spearman"])
        soup.insert(0, "encoder", [names[number] for number in soup.index])
        title = f"Greedy soup: Spearman x 100 on {pairs.name(VALIDATION)}"
        show(Table("greedy_soup", title, soup.astype({"kept": str})).printed())
        encoders = [encoders[number] for number in soup.index[soup["kept"]]]
    merge(encoders, weights).save_pretrained(folder)
    print(folder)
