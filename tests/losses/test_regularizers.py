"""The regularizers against their papers' equations in float64, on encoders, and followed downhill."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from omegaconf import OmegaConf
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
from tests.conftest import ROOT

SHAPES = [(9, 4), (4, 4), (3, 7), (1, 5), (6, 1)]


def words(rows, dim):
    """Rows of many lengths and, as those of language models, with more in common than chance."""
    return torch.randn(rows, dim, dtype=torch.float64) * torch.rand(rows, 1, dtype=torch.float64) + 0.5


def gaos_equation(rows):
    """1 / |V|^2 sum_i sum_{j != i} of the cosine, as a double loop."""
    rows = rows.tolist()
    total = 0.0
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            if i != j and any(a) and any(b):
                total += math.fsum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)
    return total / len(rows) ** 2


def wangs_equation(rows, decay, exponent, rate):
    """Their three penalties at W's own factors, with c_1 such that the prior begins at the largest singular value."""
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


@pytest.mark.parametrize("shape", SHAPES)
def test_cosine_regularization_equals_gaos_equation(shape):
    rows = words(*shape)
    assert cosine_regularization(rows).item() == pytest.approx(gaos_equation(rows), abs=1e-6)
    assert cosine_regularization(rows.float()).item() == pytest.approx(gaos_equation(rows), abs=1e-5)


def test_what_is_known_of_cosines_without_computing():
    row = torch.randn(1, 6)
    assert cosine_regularization(row).item() == pytest.approx(0, abs=1e-6)
    assert cosine_regularization(torch.cat([row, -3 * row])).item() == pytest.approx(-1 / 2)
    assert cosine_regularization(row.expand(10, 6)).item() == pytest.approx(1 - 1 / 10)
    assert cosine_regularization(torch.eye(6)).item() == pytest.approx(0, abs=1e-6)


def test_a_row_of_zeros_has_no_cosines_and_no_gradient():
    rows = words(5, 4)
    rows[2] = 0
    rows.requires_grad_()
    loss = cosine_regularization(rows)
    loss.backward()
    assert loss.item() == pytest.approx(gaos_equation(rows.detach()), abs=1e-6)
    assert torch.isfinite(rows.grad).all() and not rows.grad[2].any() and rows.grad[0].any()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("decay", "exponent", "rate"), [("polynomial", 0.2, 0.5), ("polynomial", 1.5, 0.5), ("exponential", 0.7, 0.3)]
)
def test_spectrum_control_equals_wangs_equation(shape, decay, exponent, rate):
    rows, curve = words(*shape), decay_curve(decay, min(shape), exponent, rate)
    expected = wangs_equation(rows, decay, exponent, rate)
    assert spectrum_control(rows, curve).item() == pytest.approx(expected, abs=1e-6)
    assert spectrum_control(rows.float(), curve).item() == pytest.approx(expected, abs=1e-4)


def test_a_spectrum_on_its_curve_costs_nothing_at_any_scale():
    u, v = torch.linalg.qr(torch.randn(40, 6, dtype=torch.float64)).Q, torch.linalg.qr(torch.randn(6, 6).double()).Q
    curve = decay_curve("exponential", 6, exponent=0.5, rate=0.4)
    rows = u * curve @ v.T
    for scale in (1e-6, 1.0, 1e6):
        assert spectrum_control(scale * rows, curve).item() == pytest.approx(0, abs=1e-12)
    assert spectrum_control(rows, decay_curve("exponential", 6, exponent=0.5, rate=0.5)) > 1e-3


@pytest.mark.parametrize("decay", ["polynomial", "exponential"])
def test_curves_fall_from_1_and_are_flat_without_exponent(decay):
    curve = decay_curve(decay, 9, exponent=0.4)
    assert curve[0] == 1 and (curve.diff() < 0).all() and curve[-1] > 0
    assert torch.equal(decay_curve(decay, 9, exponent=0.0), torch.ones(9, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(8, 4), (3, 5)])
def test_gradients_equal_finite_differences(shape):
    rows, curve = words(*shape).requires_grad_(), decay_curve("polynomial", min(shape), 0.3)
    torch.autograd.gradcheck(cosine_regularization, (rows,))
    torch.autograd.gradcheck(lambda x: spectrum_control(x, curve), (rows,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("values", [[2.0] * 6, [3.0, 1, 1, 1, 1, 1], [1.0, 1, 1, 0, 0, 0], [1.0, 0, 0, 0, 0, 0]])
def test_repeated_and_vanishing_singular_values_have_gradients_of_bounded_size(values, dtype):
    basis = torch.linalg.qr(torch.randn(20, 6, dtype=torch.float64)).Q
    rows = (basis * torch.tensor(values)).to(dtype).requires_grad_()
    curve = decay_curve("polynomial", 6, 0.5)
    spectrum_control(rows, curve).backward()
    assert torch.isfinite(rows.grad).all()
    assert 0 < rows.grad.norm() < 20


@pytest.mark.parametrize("term", [CosineRegularization(), SpectrumControl()])
def test_mixed_and_half_precision_leave_the_terms_in_single_precision(term):
    rows = words(12, 5).bfloat16()
    expected = term.term(rows.float())
    with torch.autocast("cpu", torch.bfloat16):
        mixed = term.term(rows.float())
    for value in (term.term(rows), mixed):
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize(("architecture", "padding"), [("bert", 0), ("roberta", 1), ("electra", 0), ("modernbert", 0)])
@pytest.mark.parametrize("term", [CosineRegularization(), SpectrumControl(decay="exponential")])
def test_terms_are_of_all_rows_but_the_paddings(architecture, padding, term, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean")
    weight = encoder.backbone.get_input_embeddings().weight
    rows = [row for number, row in enumerate(weight.detach()) if number != padding]
    term.attach(encoder)
    loss = term(encoder, {})
    assert loss == term.term(torch.stack(rows))
    loss.backward()
    assert not weight.grad[padding].any() and weight.grad[padding + 1].any()
    others = [name for name, parameter in encoder.named_parameters() if parameter.grad is not None]
    assert len(others) == 1


def test_where_nothing_is_padding_all_rows_count():
    embedding = nn.Embedding(5, 3)
    encoder = SimpleNamespace(backbone=SimpleNamespace(get_input_embeddings=lambda: embedding))
    assert word_embeddings(encoder) is embedding.weight


@pytest.mark.parametrize("kind", ["not implemented", "no embedding"])
@pytest.mark.parametrize("term", [CosineRegularization(), SpectrumControl()])
def test_a_model_without_word_embeddings_is_told_before_training(kind, term):
    class Pixels(nn.Module):
        def get_input_embeddings(self):
            if kind == "not implemented":
                raise NotImplementedError
            return nn.Conv2d(1, 1, 1)

    with pytest.raises(UserError, match="^auxiliary: Pixels has no matrix of word embeddings"):
        term.attach(SimpleNamespace(backbone=Pixels()))


@pytest.mark.parametrize(
    ("term", "settings", "message"),
    [
        (CosineRegularization, {"weight": -1.0}, "^auxiliary.cosine_regularization.weight=-1.0"),
        (CosineRegularization, {"weight": float("inf")}, "^auxiliary.cosine_regularization.weight=inf"),
        (SpectrumControl, {"weight": float("nan")}, "^auxiliary.spectrum_control.weight=nan"),
        (SpectrumControl, {"decay": "linear"}, "decay=linear: choose one of polynomial, exponential"),
        (SpectrumControl, {"exponent": -0.1}, "^auxiliary.spectrum_control.exponent=-0.1: it must be 0 or more"),
        (SpectrumControl, {"rate": float("nan")}, "^auxiliary.spectrum_control.rate=nan"),
    ],
)
def test_values_out_of_range_are_named(term, settings, message):
    with pytest.raises(UserError, match=message):
        term(**settings)


@pytest.mark.parametrize("kind", [CosineRegularization, SpectrumControl])
def test_the_configs_hold_the_defaults(kind):
    path = ROOT / "conf" / "auxiliary" / f"{kind.name}.yaml"
    assert path.read_text().startswith(f"# @package auxiliary.{kind.name}\n")
    term, default = instantiate(OmegaConf.load(path)), kind()
    settings = [name for name in vars(default) if not name.startswith("_")]
    assert type(term) is kind and "weight" in settings
    assert {name: getattr(term, name) for name in settings} == {name: getattr(default, name) for name in settings}


def descend(term, encoder, steps, lr):
    optimizer = torch.optim.Adam(encoder.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        term(encoder, {}).backward()
        optimizer.step()


@pytest.fixture
def cone(make_model):
    """An encoder whose word embeddings lie in a narrow cone."""
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    with torch.no_grad():
        encoder.backbone.get_input_embeddings().weight += 0.05
    return encoder


def test_cosines_fall(cone):
    def mean_cosine():
        unit = F.normalize(word_embeddings(cone).detach())
        return (unit @ unit.T).fill_diagonal_(0).mean().item()

    before = mean_cosine()
    descend(CosineRegularization(), cone, steps=60, lr=2e-3)
    assert before > 0.5
    assert mean_cosine() < 0.01


@pytest.mark.parametrize(
    "settings", [{}, {"exponent": 0.5}, {"decay": "exponential", "exponent": 1.0, "rate": 0.1}], ids=str
)
def test_the_spectrum_comes_to_follow_its_curve(cone, settings):
    term = SpectrumControl(**settings)
    curve = decay_curve(term.decay, 32, term.exponent, term.rate).numpy()

    def furthest():
        sigma = np.linalg.svd(word_embeddings(cone).detach().double().numpy(), compute_uv=False)
        return abs(sigma / sigma[0] - curve).max()

    before = furthest()
    descend(term, cone, steps=250, lr=2e-3)
    assert before > 0.1
    assert furthest() < 0.01
