"""Vectors that are not finite, and post-processing after an encoder; test_suite.py counts the calls of the cache."""

import pytest
import torch

from simcse_pl.evaluation.encoding import encode_once, postprocessed
from simcse_pl.postprocessing.linear import Whitening
from simcse_pl.utils.errors import UserError


def test_vectors_must_be_finite():
    def broken(sentences):
        return torch.tensor([[1.0, float("nan") if sentence == "b" else 0.0] for sentence in sentences])

    with pytest.raises(UserError, match="the encoder's vector of 'b' is not finite"):
        encode_once(broken, ["a"])(["c", "b"])


def encode(numbers):
    return torch.stack([torch.randn(4, generator=torch.Generator().manual_seed(int(n))) for n in numbers])


FIRST, SECOND = [str(n) for n in range(40)], [str(n) for n in range(40, 80)]


def test_only_a_postprocess_that_is_not_fitted_is_fitted_in_each_call():
    fitted, each_time = Whitening().fit(encode(FIRST)), postprocessed(encode, Whitening())
    assert torch.equal(postprocessed(encode, fitted)(SECOND), fitted.transform(encode(SECOND)))
    for sentences in (FIRST, SECOND):
        x = each_time(sentences).double()
        torch.testing.assert_close(torch.cov(x.T), torch.eye(4).double(), atol=1e-4, rtol=0)
