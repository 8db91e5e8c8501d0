"""Averages of encoders: values, what cannot be averaged, the greedy recipe."""

import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.merging import difference, greedy_soup, merge
from simcse_pl.postprocessing.linear import RemoveComponents
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


def test_the_greedy_recipe_leaves_out_what_lowers_the_score(encoders):
    for encoder, value in zip(encoders, (1.0, 8.0, 5.0), strict=True):
        torch.nn.init.constant_(encoder.projection[0].bias, value)
    scores = {1.0: 0.6, 8.0: 0.5, 5.0: 0.9, 6.5: 0.8, 3.0: 0.9}  # of the bias; of 5 and 1, the mean is 3

    def score(encoder):
        return scores.get(encoder.projection[0].bias[0].item(), 0.1)

    assert greedy_soup(encoders, score) == [2, 0]
