"""Averages of encoders: values, and what cannot be averaged."""

import math

import pandas as pd
import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.postprocessing.linear import RemoveComponents
from simcse_pl.tools.merge import difference, greedy_soup, merge
from tests.conftest import SENTENCES


@pytest.fixture
def encoders(make_model):
    """Three encoders of one model with a head, whose weights differ."""
    made = [SentenceEncoder.from_pretrained(make_model("bert"), "cls", head="mlp") for _ in range(3)]
    for encoder in made:
        for weight in encoder.parameters():
            torch.nn.init.normal_(weight)
    return made


def test_weights_are_the_weighted_mean_and_the_encoders_stay(encoders):
    before = encoders[0].encode(SENTENCES)
    merged = merge(encoders, [1, 1, 2])
    states = [encoder.state_dict() for encoder in encoders]
    for name, x in merged.state_dict().items():
        torch.testing.assert_close(x, 0.25 * states[0][name] + 0.25 * states[1][name] + 0.5 * states[2][name])
    assert torch.equal(encoders[0].encode(SENTENCES), before)
    assert not torch.allclose(merged.encode(SENTENCES), before)


def test_encoders_that_differ_in_more_than_weights_cannot_be_averaged(encoders, make_model):
    first, other = encoders[:2]
    assert difference(first, other) is None
    load = SentenceEncoder.from_pretrained
    assert difference(first, load(make_model("bert"), "mean", head="mlp")) == "pooling=cls and mean"
    assert "shapes of their weights" in difference(first, load(make_model("bert"), "cls"))
    assert "shapes of their weights" in difference(first, load(make_model("roberta"), "cls", head="mlp"))
    other.postprocess = RemoveComponents(1).fit(other.encode(SENTENCES))
    assert "post-processing" in difference(first, other)
    other.postprocess = None
    other.tokenizer.add_tokens(["newword"])
    assert "tokenizers" in difference(first, other)


def test_a_greedy_soup_keeps_what_does_not_lower_the_score_of_the_mean(encoders):
    """Against a loop over the values of one weight, on which the score depends."""

    def value(encoder):
        return encoder.backbone.embeddings.word_embeddings.weight[5, 0].item()

    values = [value(encoder) for encoder in encoders]
    target = values[0] + 0.4 * (values[1] - values[0])
    expected, kept = {}, []
    for number in sorted(range(3), key=lambda i: abs(values[i] - target)):
        error = abs(sum([*kept, values[number]]) / (len(kept) + 1) - target)
        better = not kept or error <= abs(sum(kept) / len(kept) - target)
        expected[number] = {"alone": -abs(values[number] - target), "mean with it": -error, "kept": better}
        kept += [values[number]] * better
    soup = greedy_soup(encoders, lambda encoder: -abs(value(encoder) - target))
    assert list(soup.index) == list(expected) and soup["kept"].nunique() == 2
    pd.testing.assert_frame_equal(soup, pd.DataFrame(expected).T.infer_objects(), atol=1e-6, check_dtype=False)
    diverged = greedy_soup(encoders, lambda encoder: math.nan if encoder is encoders[0] else 1.0)
    assert list(diverged.index) == [1, 2, 0]
