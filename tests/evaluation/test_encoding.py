"""Encoding by column, the cache of vectors, and post-processing after an encoder."""

import pytest
import torch

from simcse_pl.evaluation.encoding import EncodeOnce, Postprocessed, encode_columns, pair_features
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError


class Recorder:
    """An encoder that records the sentences of each call."""

    def __init__(self):
        self.calls = []

    def __call__(self, sentences):
        self.calls.append(list(sentences))
        return torch.tensor([[float(len(sentence)), 1.0, float(ord(sentence[0]))] for sentence in sentences])


def test_columns_are_encoded_once_in_sorted_order():
    encode = Recorder()
    columns = [["dog", "a", "dog"], ["the", "a", "me"], ["me"]]
    vectors = encode_columns(encode, *columns)
    assert encode.calls == [["a", "dog", "me", "the"]]
    assert all(torch.equal(own, encode(column)) for own, column in zip(vectors, columns, strict=True))


def test_pair_features():
    features = pair_features(torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 4.0]]))
    assert features.tolist() == [[2.0, 6.0, 3.0, -8.0]]


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


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_vectors_must_be_finite(bad):
    def broken(sentences):
        return torch.tensor([[1.0, bad if sentence == "b" else 0.0] for sentence in sentences])

    with pytest.raises(UserError, match="the encoder's vector of 'b' is not finite"):
        EncodeOnce(broken, ["a", "b"])
    with pytest.raises(UserError, match="the encoder's vector of 'b' is not finite"):
        EncodeOnce(broken, ["a"])(["c", "b"])


def encode(numbers):
    return torch.stack([torch.randn(4, generator=torch.Generator().manual_seed(int(n))) for n in numbers])


FIRST, SECOND = [str(n) for n in range(40)], [str(n) for n in range(40, 80)]


def test_a_fitted_postprocess_is_not_fitted_again():
    whitening = Whitening().fit(encode(FIRST))
    expected = whitening.transform(encode(SECOND))
    assert torch.equal(Postprocessed(encode, whitening)(SECOND), expected)


def test_a_postprocess_that_is_not_fitted_is_fitted_in_each_call():
    processed = Postprocessed(encode, Whitening())
    for sentences in (FIRST, SECOND):
        x = processed(sentences).double()
        torch.testing.assert_close(torch.cov(x.T), torch.eye(4).double(), atol=1e-4, rtol=0)
