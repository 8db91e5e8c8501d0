"""Average the weights of encoders that were fine-tuned from the same model (Wortsman et al. 2022, "Model Soups")."""

import copy
from collections.abc import Callable, Sequence

import pandas as pd

from simcse_pl.models.encoder import SentenceEncoder


def difference(first: SentenceEncoder, other: SentenceEncoder) -> str | None:
    """Return what keeps two encoders from being averaged, such as `pooling=cls and mean`, or None."""
    shapes, others = ({name: x.shape for name, x in encoder.state_dict().items()} for encoder in (first, other))
    if type(first.backbone) is not type(other.backbone) or shapes != others:
        return "the names or shapes of their weights"
    if first.tokenizer.get_vocab() != other.tokenizer.get_vocab():
        return "their tokenizers"
    if first.postprocess or other.postprocess:
        return "their post-processing, which belongs to the vectors of one encoder"
    of_other = vars(other.settings)
    for name, value in vars(first.settings).items():
        if value != of_other[name]:
            return f"{name}={value} and {of_other[name]}"
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
    """
    alone = pd.Series([score(encoder) for encoder in encoders]).sort_values(ascending=False, kind="stable")
    soup, best, rows = list[SentenceEncoder](), float("-inf"), []
    for number, of_encoder in alone.items():
        mean = score(merge([*soup, encoders[number]])) if soup else of_encoder
        if kept := mean >= best:
            soup, best = [*soup, encoders[number]], mean
        rows.append({"alone": of_encoder, "mean with it": mean, "kept": kept})
    return pd.DataFrame(rows, index=alone.index)
