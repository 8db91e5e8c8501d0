"""CoSENT and AnglE where there is no order, and the terms of AnglE."""

import pytest
import torch

from simcse_pl.methods.angle import AngleLoss
from simcse_pl.methods.cosent import CoSENTLoss


@pytest.mark.parametrize("loss", [CoSENTLoss(), AngleLoss(in_batch_weight=0.0, cosine_weight=1.0)])
def test_equal_scores_have_loss_0_and_no_gradient(loss):
    first, second = torch.randn(2, 4, 6, requires_grad=True)
    value = loss(first, second, labels=torch.full((4,), 0.5))
    assert value.item() == 0 and not any(gradient.any() for gradient in torch.autograd.grad(value, (first, second)))
