"""AnglE and CoSENT where there is no order, and the curves of AnglE's terms."""

import pytest
import torch

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.methods.angle import AngleLoss
from simcse_pl.methods.cosent import CoSENTLoss
from simcse_pl.utils.errors import UserError


@pytest.mark.parametrize("loss", [CoSENTLoss(), AngleLoss(in_batch_weight=0.0, cosine_weight=1.0)])
@pytest.mark.parametrize("rows", [1, 4])
def test_equal_scores_have_loss_0_and_no_gradient(rows, loss):
    first, second = torch.randn(2, rows, 6, requires_grad=True)
    value = loss(first, second, labels=torch.full((rows,), 0.5))
    assert value.item() == 0 and not any(gradient.any() for gradient in torch.autograd.grad(value, (first, second)))


def test_only_the_order_of_the_scores_counts_for_cosent():
    pairs, scores = torch.randn(2, 5, 6), torch.tensor([0.2, 3.0, -1.0, 0.2, 1.0])
    assert CoSENTLoss()(*pairs, labels=scores) == CoSENTLoss()(*pairs, labels=3 * scores - 7)


def test_a_term_of_weight_0_is_left_out():
    batch = EmbeddedBatch.of(*torch.randn(2, 4, 6), labels=torch.tensor([0.0, 1.0, 1.0, 0.0]))
    AngleLoss()(None, batch)
    assert batch.curves.keys() == {"objective/angle", "objective/in_batch"}
    with pytest.raises(UserError, match="^all weights are 0"):
        AngleLoss(angle_weight=0.0, in_batch_weight=0.0)
