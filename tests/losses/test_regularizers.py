"""The regularizers on word embeddings of encoders; tests/properties/test_losses.py has the equations."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from simcse_pl.losses.regularizers import (
    CosineRegularization,
    SpectrumControl,
    cosine_regularization,
    decay_curve,
    spectrum_control,
    word_embeddings,
)
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError


def words(rows, dim):
    """Rows of different lengths with a common direction, as language models have."""
    return torch.randn(rows, dim, dtype=torch.float64) * torch.rand(rows, 1, dtype=torch.float64) + 0.5


def wangs_equation(rows, decay, exponent, rate):
    """Compute their three penalties for the SVD of W, with c_1 such that the prior begins at sigma_1."""
    u, sigma, v_transposed = np.linalg.svd(rows.numpy(), full_matrices=False)
    first = {"polynomial": 1.0, "exponential": math.exp(-rate)}[decay]
    c_1 = sigma[0] / first
    penalty = 0.0
    for k, value in enumerate(sigma, 1):
        prior = c_1 * (k**-exponent if decay == "polynomial" else math.exp(-rate * k**exponent))
        penalty += (value - prior) ** 2
    for factor in (u, v_transposed.T):
        penalty += np.linalg.norm(factor.T @ factor - np.eye(len(sigma))) ** 2
    return penalty / sigma[0] ** 2


@pytest.mark.parametrize("shape", [(9, 4), (3, 7)])
@pytest.mark.parametrize(
    ("decay", "exponent", "rate"), [("polynomial", 0.2, 0.5), ("polynomial", 1.5, 0.5), ("exponential", 0.7, 0.3)]
)
def test_spectrum_control_equals_wangs_equation(shape, decay, exponent, rate):
    rows, curve = words(*shape), decay_curve(decay, min(shape), exponent, rate)
    expected = wangs_equation(rows, decay, exponent, rate)
    assert spectrum_control(rows, curve).item() == pytest.approx(expected, abs=1e-6)
    assert spectrum_control(rows.float(), curve).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("values", [[2.0] * 6, [3.0, 1, 1, 1, 1, 1], [1.0, 1, 1, 0, 0, 0], [1.0, 0, 0, 0, 0, 0]])
def test_repeated_and_zero_singular_values_have_bounded_gradients(values):
    rows = (torch.linalg.qr(torch.randn(20, 6)).Q * torch.tensor(values)).requires_grad_()
    spectrum_control(rows, decay_curve("polynomial", 6, 0.5)).backward()
    assert torch.isfinite(rows.grad).all() and 0 < rows.grad.norm() < 20


def equation_of(term, rows):
    if isinstance(term, CosineRegularization):
        return cosine_regularization(rows)
    return spectrum_control(rows, decay_curve(term.decay, min(rows.shape), term.exponent, term.rate))


@pytest.mark.parametrize(("architecture", "padding"), [("bert", 0), ("roberta", 1), ("modernbert", 0)])
@pytest.mark.parametrize("term", [CosineRegularization(), SpectrumControl(decay="exponential")])
def test_all_rows_but_the_paddings_are_regularized(architecture, padding, term, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean")
    weight = encoder.backbone.get_input_embeddings().weight
    rows = [row for number, row in enumerate(weight.detach()) if number != padding]
    loss = term(encoder, None)
    assert loss == equation_of(term, torch.stack(rows))
    loss.backward()
    assert not weight.grad[padding].any() and weight.grad[padding + 1].any()
    assert len([name for name, parameter in encoder.named_parameters() if parameter.grad is not None]) == 1


def test_without_a_padding_token_all_rows_count():
    embedding = nn.Embedding(5, 3)
    encoder = SimpleNamespace(backbone=SimpleNamespace(get_input_embeddings=lambda: embedding))
    assert word_embeddings(encoder) is embedding.weight


def test_a_model_without_word_embeddings_is_an_error():
    class Pixels(nn.Module):
        def get_input_embeddings(self):
            return nn.Conv2d(1, 1, 1)

    with pytest.raises(UserError, match="^auxiliary: Pixels has no matrix of word embeddings"):
        word_embeddings(SimpleNamespace(backbone=Pixels()))
