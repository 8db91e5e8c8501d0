"""The margin loss of soft negatives against its formula, its gradients, and its errors."""

import math

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from simcse_pl.losses.bidirectional_margin import BidirectionalMargin
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.models.roles import Role
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT

ANCHOR, POSITIVE, NEGATIVE, OTHER = Role


def cosine(first, second):
    return sum(a * b for a, b in zip(first, second, strict=True)) / math.hypot(*first) / math.hypot(*second)


def batch(embeddings, roles):
    return EmbeddedBatch(embeddings, roles, {})


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 0.3), (-0.2, 0.8), (0.0, 0.0)])
@pytest.mark.parametrize("roles", [(ANCHOR, POSITIVE, OTHER), (OTHER, NEGATIVE, ANCHOR, POSITIVE)])
def test_the_soft_negative_is_less_similar_by_a_difference_between_the_margins(alpha, beta, roles):
    rows = torch.randn(40, len(roles), 6, dtype=torch.float64)
    expected, sides = 0.0, set()
    for row in rows.tolist():
        anchor, positive, soft = (row[roles.index(role)] for role in (ANCHOR, POSITIVE, OTHER))
        difference = cosine(anchor, soft) - cosine(anchor, positive)
        expected += (max(0, difference + alpha) + max(0, -difference - beta)) / len(rows)
        sides.add((difference > -alpha) - (difference < -beta))
    assert sides >= {-1, 1}, "some differences are too large and some too small"
    loss = BidirectionalMargin(alpha=alpha, beta=beta)
    assert loss(None, batch(rows, roles)).item() == pytest.approx(expected, rel=1e-12)
    few = rows[:4].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(None, batch(x, roles)), few)


def test_a_difference_between_the_margins_has_no_loss_and_no_gradient():
    positive, soft = torch.tensor([1.0, 0.0]), torch.tensor([0.8, 0.6])
    rows = torch.stack([positive, positive, soft])[None].requires_grad_()
    loss = BidirectionalMargin()(None, batch(rows, (ANCHOR, POSITIVE, OTHER)))
    loss.backward()
    assert loss == 0 and not rows.grad.any()


def test_the_contrastive_objective_does_not_compare_the_soft_negative():
    rows = torch.randn(4, 3, 6, requires_grad=True)
    ContrastiveObjective()(batch(rows, (ANCHOR, POSITIVE, OTHER))).backward()
    assert not rows.grad[:, 2].any() and rows.grad[:, :2].all()


def test_cosines_are_computed_in_float32_in_half_precision():
    rows = torch.randn(8, 3, 16).bfloat16()
    loss = BidirectionalMargin()
    with torch.autocast("cpu", torch.bfloat16):
        half = loss(None, batch(rows, (ANCHOR, POSITIVE, OTHER)))
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(loss(None, batch(rows.double(), (ANCHOR, POSITIVE, OTHER))).item(), rel=1e-5)


@pytest.mark.parametrize("roles", [(ANCHOR, POSITIVE), (ANCHOR, POSITIVE, POSITIVE, OTHER), (ANCHOR, OTHER)])
def test_rows_without_one_positive_and_one_soft_negative_are_errors(roles):
    with pytest.raises(UserError, match="^auxiliary.bidirectional_margin: rows need one positive and") as error:
        BidirectionalMargin().check_rows(roles, None)
    assert str(error.value).endswith(f"but they have {', '.join(roles)}: set views=[dropout,negation]")


def test_margins_in_the_wrong_order_are_an_error():
    message = r"^auxiliary.bidirectional_margin.alpha=0.5: it must be at most beta, 0.3$"
    with pytest.raises(UserError, match=message):
        BidirectionalMargin(alpha=0.5)


def test_the_config_holds_the_defaults():
    made = instantiate(OmegaConf.load(ROOT / "conf/auxiliary/bidirectional_margin.yaml"))
    own = BidirectionalMargin()
    assert type(made) is BidirectionalMargin
    assert (made.weight, made.alpha, made.beta) == (own.weight, own.alpha, own.beta) == (1e-3, 0.1, 0.3)
