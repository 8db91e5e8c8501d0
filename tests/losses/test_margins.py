"""The angular margin and the order of views, against loops in float64."""

import itertools
import math

import pytest
import torch

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.margins import AngularMarginObjective, TripletMargin, add_angle
from simcse_pl.models.roles import Role
from tests.conftest import embedded
from tests.losses.loops import log_sum_exp, similarity

ANCHOR, POSITIVE, OTHER = Role.ANCHOR, Role.POSITIVE, Role.OTHER


def angle(a, b):
    return math.acos(max(-1.0, min(1.0, similarity(a, b))))


@pytest.mark.parametrize("margin", [0.0, 10.0, 90.0])
@pytest.mark.parametrize("views", [2, 3])
def test_the_margin_is_added_to_the_angle_of_the_own_positive(views, margin):
    x = torch.randn(5, views, 4, dtype=torch.float64)
    rows, losses = x.tolist(), []
    for i, row in enumerate(rows):
        own = math.cos(angle(row[0], row[1]) + math.radians(margin)) / 0.3
        others = [math.cos(angle(row[0], other[1])) / 0.3 for j, other in enumerate(rows) if j != i]
        others += [math.cos(angle(row[0], other[2])) / 0.3 for other in rows if views == 3]
        losses.append(log_sum_exp([own, *others]) - own)
    objective = AngularMarginObjective(margin, temperature=0.3)
    assert objective(embedded(x)).item() == pytest.approx(math.fsum(losses) / 5, rel=1e-9)
    assert torch.autograd.gradcheck(lambda given: objective(embedded(given)), x.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_and_opposite_embeddings_have_finite_gradients(dtype):
    for sign in (1, -1):
        anchors = torch.randn(4, 6, dtype=dtype)
        x = torch.stack([anchors, sign * anchors], dim=1).requires_grad_()
        AngularMarginObjective(10.0)(embedded(x)).backward()
        assert x.grad.isfinite().all()
    torch.testing.assert_close(
        add_angle(torch.tensor([1.0, -1.0, 0.0]), math.radians(10)),
        torch.tensor([math.cos(math.radians(angle)) for angle in (10, 190, 100)]),
        rtol=0,
        atol=1e-4,
    )


@pytest.mark.parametrize("margin", [0.0, 0.4])
@pytest.mark.parametrize("roles", [(ANCHOR, POSITIVE, OTHER, OTHER), (OTHER, ANCHOR, OTHER, OTHER)])
def test_each_of_the_other_views_should_be_more_similar_than_the_next(roles, margin):
    x = torch.randn(6, len(roles), 3, dtype=torch.float64)
    terms = []
    for row in x.tolist():
        others = [view for view, role in zip(row, roles, strict=True) if role is OTHER]
        cosines = [similarity(row[roles.index(ANCHOR)], other) for other in others]
        terms += [max(0.0, after - before + margin) for before, after in itertools.pairwise(cosines)]
    assert any(terms) and not all(terms)
    loss = TripletMargin(margin=margin)
    assert loss(None, EmbeddedBatch(x, roles, {})).item() == pytest.approx(math.fsum(terms) / len(terms), rel=1e-9)
    assert torch.autograd.gradcheck(lambda given: loss(None, EmbeddedBatch(given, roles, {})), x.requires_grad_())
