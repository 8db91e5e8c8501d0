"""Encoding by column, the cache of vectors, and post-processing after an encoder."""

import pytest
import torch

from simcse_pl.evaluation.encoding import EncodeOnce, Postprocessed
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError


class Recorder:
    """An encoder that records the sentences of each call."""

    def __init__(self):
        self.calls = []

    def __call__(self, sentences):
        self.calls.append(list(sentences))
        return torch.tensor([[float(len(sentence)), 1.0, float(ord(sentence[0]))] for sentence in sentences])


@pytest.mark.parametrize(
    ("cached", "encoded"),
    [(["b", "a", "b", "ccc"], [["b", "a", "ccc"], ["a", "dd"]]), ([], [["b", "a", "b"], ["ccc"], ["a", "dd"]])],
)
def test_cached_sentences_are_encoded_once(cached, encoded):
    encode, direct = Recorder(), Recorder()
    once = EncodeOnce(encode, cached)
    for sentences in (["b", "a", "b"], ["ccc"], ["a", "dd"]):
        assert torch.equal(once(sentences), direct(sentences))
    assert encode.calls == encoded


def test_vectors_must_be_finite():
    def broken(sentences):
        return torch.tensor([[1.0, float("nan") if sentence == "b" else 0.0] for sentence in sentences])

    with pytest.raises(UserError, match="the encoder's vector of 'b' is not finite"):
        EncodeOnce(broken, ["a"])(["c", "b"])


def encode(numbers):
    return torch.stack([torch.randn(4, generator=torch.Generator().manual_seed(int(n))) for n in numbers])


FIRST, SECOND = [str(n) for n in range(40)], [str(n) for n in range(40, 80)]


def test_only_a_postprocess_that_is_not_fitted_is_fitted_in_each_call():
    fitted, each_time = Whitening().fit(encode(FIRST)), Postprocessed(encode, Whitening())
    assert torch.equal(Postprocessed(encode, fitted)(SECOND), fitted.transform(encode(SECOND)))
    for sentences in (FIRST, SECOND):
        x = each_time(sentences).double()
        torch.testing.assert_close(torch.cov(x.T), torch.eye(4).double(), atol=1e-4, rtol=0)
