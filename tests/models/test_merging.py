"""Averages of encoders: values, and what cannot be averaged."""

import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.merging import difference, merge
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
