"""Average the weights of encoders that were fine-tuned from the same model, such as runs with several seeds."""

import argparse
import copy
import math
import os
from collections.abc import Callable, Sequence

import pandas as pd
import yaml
from omegaconf import OmegaConf

from simcse_pl.config import CONF
from simcse_pl.evaluation.suite import encode_once
from simcse_pl.models.adapters import merge_adapter
from simcse_pl.models.backbone import has_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import computation
from simcse_pl.results import VALIDATION, factor, score_name, split_and_metric
from simcse_pl.tools.common import add_encoder, load_selected, new_folder
from simcse_pl.utils.code import locate
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import real, show

EVALUATORS = {file.stem: file for file in sorted((CONF / "evaluators").glob("*.yaml"))}


def difference(first: SentenceEncoder, other: SentenceEncoder) -> str | None:
    """Return what keeps two encoders from being averaged, such as `pooling=cls and mean`, or None."""
    shapes, others = ({name: x.shape for name, x in encoder.state_dict().items()} for encoder in (first, other))
    if type(first.backbone) is not type(other.backbone) or shapes != others:
        return "the names or shapes of their weights"
    if computation(first) != computation(other):
        return "their configs, such as attention and activation, or their tokenizers"
    if first.postprocess or other.postprocess:
        return "their post-processing, which belongs to the vectors of one encoder"
    other_settings = vars(other.settings)
    for name, value in vars(first.settings).items():
        if value != other_settings[name]:
            return f"{name}={value} and {other_settings[name]}"
    return None


def merge(encoders: Sequence[SentenceEncoder], weights: Sequence[float] | None = None) -> SentenceEncoder:
    """Return an encoder whose weights are the weighted mean of those of `encoders`, which are not changed.

    The means are computed in float64. Integers, such as the steps that a batch normalization counted, are those of the
    first encoder, as are the settings and the tokenizer.

    Args:
        encoders: encoders without a `difference`.
        weights: one number per encoder, which are divided by their sum; None for equal ones.

    Examples:
        >>> soup = merge([SentenceEncoder.from_pretrained(f"outputs/seed_{seed}/encoder") for seed in (0, 1, 2)])
    """
    weights = [1.0] * len(encoders) if weights is None else weights
    merged, states = copy.deepcopy(encoders[0]), [encoder.state_dict() for encoder in encoders]
    for name, x in merged.state_dict().items():  # shares its memory with `merged`
        if x.is_floating_point():
            terms = (weight * state[name].double() for weight, state in zip(weights, states, strict=True))
            x.copy_(sum(terms) / sum(weights))
    return merged


def greedy_soup(encoders: Sequence[SentenceEncoder], score: Callable[[SentenceEncoder], float]) -> pd.DataFrame:
    """Make a greedy soup: from the best encoder to the worst, keep those with which the mean's score does not fall.

    Args:
        encoders: encoders without a `difference`.
        score: a function of an encoder; higher is better, and NaN, as of a run that diverged, is the worst.

    Returns:
        A row per encoder, by its number, the best first: its score `alone`, that of the `mean with it`, and `kept`.

    Raises:
        UserError: all scores are NaN.
    """
    alone = pd.Series([score(encoder) for encoder in encoders]).sort_values(ascending=False, kind="stable")
    if alone.isna().all():
        raise UserError("--greedy: the score of every encoder is NaN")
    soup, best, rows = list[SentenceEncoder](), float("-inf"), []
    for number, alone_score in alone.items():
        mean = score(merge([*soup, encoders[number]])) if soup else alone_score
        if kept := mean >= best:
            soup, best = [*soup, encoders[number]], mean
        rows.append({"alone": alone_score, "mean with it": mean, "kept": kept})
    return pd.DataFrame(rows, index=alone.index)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, "encoders", computes=False, nargs="+")
    parser.add_argument("folder", metavar="FOLDER", help="output folder; it must not contain files")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--weights", nargs="+", type=real, metavar="X", help="weight of each encoder (default: equal)")
    text = "keep, from the best encoder on, those with which the score of the mean does not fall on DATA: a file, or "
    text += "what data.validation of `simcse train` takes, in YAML (default: STS-B's dev split)"
    which.add_argument("--greedy", nargs="?", const="senteval, hub, sample", metavar="DATA", help=text)
    text = "what to measure on DATA, by the metric that `simcse train` would monitor (default: %(default)s)"
    parser.add_argument("--evaluator", choices=EVALUATORS, default="sts", help=text)


def run(arguments: argparse.Namespace) -> None:
    names, weights = arguments.encoders, arguments.weights
    if len(names) < 2:
        raise UserError(f"{names[0]}, {arguments.folder}: give two encoders or more, and then the output folder")
    if arguments.evaluator != "sts" and not arguments.greedy:
        raise UserError("--evaluator: it needs --greedy")
    folder = new_folder(arguments.folder)
    if weights and (len(weights) != len(names) or sum(weights) <= 0):
        raise UserError("--weights: give one number per encoder, with a sum above 0")
    encoders = [load_selected(name, arguments) for name in names]
    for encoder, name in zip(encoders, names, strict=True):
        if has_adapter(encoder.backbone):
            merge_adapter(encoder.backbone)
        if differing := difference(encoders[0], encoder):
            raise UserError(f"{names[0]} and {name} cannot be averaged: they differ in {differing}")
    if arguments.greedy:
        config = OmegaConf.load(EVALUATORS[arguments.evaluator])
        (options,), (_, metric) = config.evaluators.values(), split_and_metric(config.monitor)
        senteval = {"senteval_dir": os.environ.get("SENTEVAL_DIR")} if "senteval_dir" in options else {}
        data = locate(options._target_)(validation=yaml.safe_load(arguments.greedy), **senteval)

        def score(encoder: SentenceEncoder) -> float:
            if not all(x.isfinite().all() for x in encoder.state_dict().values()):
                return math.nan  # a ranking of vectors that are NaN has the best score
            encode = encode_once(encoder.encode, encoder.prompts or ())
            return factor(metric) * float(data(encode, VALIDATION)[metric])

        soup = greedy_soup(encoders, score)
        soup.insert(0, "encoder", [names[number] for number in soup.index])
        title = f"Greedy soup: {score_name(metric)} on {data.name(VALIDATION)}"
        show(Table("greedy_soup", title, soup.astype({"kept": str})).printed())
        encoders = [encoders[number] for number in soup.index[soup["kept"]]]
    merge(encoders, weights).save_pretrained(folder)
    print(folder)
