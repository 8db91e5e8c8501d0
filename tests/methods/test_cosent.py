"""CoSENT and AnglE where there is no order, and the terms of AnglE."""

import pytest
import torch

from simcse_pl.methods.angle import AngleLoss
from simcse_pl.methods.cosent import CoSENTLoss
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import RowKind


@pytest.mark.parametrize("loss", [CoSENTLoss(), AngleLoss(in_batch_weight=0.0, cosine_weight=1.0)])
def test_equal_scores_have_loss_0_and_no_gradient(loss):
    first, second = torch.randn(2, 4, 6, requires_grad=True)
    value = loss(first, second, labels=torch.full((4,), 0.5))
    assert value.item() == 0 and not any(gradient.any() for gradient in torch.autograd.grad(value, (first, second)))


def test_a_score_that_is_nan_is_in_no_order():
    first, second = torch.randn(2, 3, 6)
    scores = torch.tensor([0.0, torch.nan, 1.0])
    ordered = CoSENTLoss()(first[::2], second[::2], labels=scores[::2])
    torch.testing.assert_close(CoSENTLoss()(first, second, labels=scores), ordered)


def test_angle_has_no_positives_among_scores_of_another_range():
    rows = RowKind(labels="scores", label_range=(0, 5))
    AngleLoss(in_batch_weight=0).check_rows(rows)
    with pytest.raises(UserError, match="scores up to 5: pairs of 1 or more are positives: set in_batch_weight=0"):
        AngleLoss().check_rows(rows)


def test_angle_needs_an_even_number_of_dimensions():
    with pytest.raises(UserError, match="even number of dimensions, not 5"):
        AngleLoss()(*torch.randn(2, 3, 5), labels=torch.ones(3))
