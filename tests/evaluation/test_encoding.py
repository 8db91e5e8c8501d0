"""Sentences that are encoded once, and post-processing behind an encoder."""

import pytest
import torch

from simcse_pl.evaluation.encoding import EncodeOnce, Postprocessed, encode_columns, pair_features
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError


class Counting:
    def __init__(self):
        self.asked = []

    def __call__(self, sentences):
        self.asked.append(list(sentences))
        return torch.tensor([[float(len(sentence)), 1.0, float(ord(sentence[0]))] for sentence in sentences])


def test_columns_are_encoded_once_in_sorted_order():
    encode = Counting()
    first, second, third = encode_columns(encode, ["dog", "a", "dog"], ["the", "a", "me"], ["me"])
    assert encode.asked == [["a", "dog", "me", "the"]]
    alone = Counting()
    assert torch.equal(first, alone(["dog", "a", "dog"])) and torch.equal(second, alone(["the", "a", "me"]))
    assert torch.equal(third, alone(["me"]))


def test_a_pairs_features_are_sentevals():
    features = pair_features(torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 4.0]]))
    assert features.tolist() == [[2.0, 6.0, 3.0, -8.0]]


def test_a_sentence_that_is_known_goes_through_the_encoder_once():
    encode, direct = Counting(), Counting()
    once = EncodeOnce(encode, ["b", "a", "b", "ccc"])
    for sentences in (["b", "a", "b"], ["ccc"], ["a", "dd"], ["a", "ccc", "b"]):
        assert torch.equal(once(sentences), direct(sentences))
    assert once([]).shape == (0, 3)
    assert encode.asked == [["b", "a", "ccc"], ["a", "dd"]]


def test_nothing_known_is_nothing_encoded():
    encode = Counting()
    once = EncodeOnce(encode, [])
    assert not encode.asked
    assert torch.equal(once(["a"]), Counting()(["a"]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_vectors_that_are_not_finite(bad):
    def broken(sentences):
        return torch.tensor([[1.0, bad if sentence == "b" else 0.0] for sentence in sentences])

    with pytest.raises(UserError, match="the encoder's vector of 'b' is not finite"):
        EncodeOnce(broken, ["a", "b"])
    with pytest.raises(UserError, match="the encoder's vector of 'b' is not finite"):
        EncodeOnce(broken, ["a"])(["c", "b"])


def sentences(start):
    generator = torch.Generator().manual_seed(start)
    return ["x" * int(n) for n in torch.randint(1, 50, (40,), generator=generator)]


def encode(given):
    return torch.stack([torch.randn(4, generator=torch.Generator().manual_seed(len(s))) for s in given])


def test_a_fitted_postprocess_stays_as_it_is():
    whitening = Whitening().fit(encode(sentences(0)))
    expected = whitening.transform(encode(sentences(1)))
    assert torch.equal(Postprocessed(encode, whitening)(sentences(1)), expected)


def test_target_fits_anew_on_the_sentences_of_each_call():
    processed = Postprocessed(encode, Whitening())
    for start in (0, 1):
        x = processed(sentences(start)).double()
        torch.testing.assert_close(torch.cov(x.T), torch.eye(4).double(), atol=1e-4, rtol=0)
