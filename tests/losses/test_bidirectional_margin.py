"""The margin loss of soft negatives against its formula and its gradients."""

import pytest
import torch

from simcse_pl.losses.bidirectional_margin import BidirectionalMargin
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.roles import Role
from tests.losses.loops import similarity

ANCHOR, POSITIVE, NEGATIVE, OTHER = Role


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 0.3), (-0.2, 0.8), (0.0, 0.0)])
@pytest.mark.parametrize("roles", [(ANCHOR, POSITIVE, OTHER), (OTHER, NEGATIVE, ANCHOR, POSITIVE)])
def test_the_soft_negative_is_less_similar_by_a_difference_between_the_margins(alpha, beta, roles):
    rows = torch.randn(40, len(roles), 6, dtype=torch.float64)
    expected, sides = 0.0, set()
    for row in rows.tolist():
        anchor, positive, soft = (row[roles.index(role)] for role in (ANCHOR, POSITIVE, OTHER))
        difference = similarity(anchor, soft) - similarity(anchor, positive)
        expected += (max(0, difference + alpha) + max(0, -difference - beta)) / len(rows)
        sides.add((difference > -alpha) - (difference < -beta))
    assert sides == ({-1, 0, 1} if alpha < beta else {-1, 1}), "too large, between the margins, or too small"
    loss = BidirectionalMargin(alpha=alpha, beta=beta)
    assert loss(None, EmbeddedBatch(rows, roles, {})).item() == pytest.approx(expected, rel=1e-12)
    few = rows[:4].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(None, EmbeddedBatch(x, roles, {})), few)
