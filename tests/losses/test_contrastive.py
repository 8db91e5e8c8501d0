"""The contrastive loss at its limits, and queues that it cannot use; test_all_losses.py has its formula."""

import pytest
import torch

from simcse_pl.losses.contrastive import ContrastiveLoss, contrastive_loss, near_negatives
from simcse_pl.methods.dclr import DebiasedLoss
from simcse_pl.methods.whitenedcse import WhitenedContrastiveLoss
from simcse_pl.utils.errors import UserError
from tests.losses.cases import attached, batch_of, load


@pytest.mark.parametrize("hardness", [1.0, 50.0])
def test_hardness_of_distant_embeddings_is_finite(hardness):
    anchors = torch.eye(4, requires_grad=True)
    loss = contrastive_loss(anchors, -torch.eye(4).roll(1, 0), temperature=0.001, hardness=hardness)
    loss.backward()
    assert loss.isfinite() and anchors.grad.isfinite().all()


@pytest.mark.parametrize("hardness", [0.0, 1.0])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("rows", [1, 4])
def test_an_anchor_without_negatives_has_loss_0_and_no_gradient(rows, decoupled, hardness):
    anchors, positives = torch.randn(rows, 3, requires_grad=True), torch.randn(rows, 3)
    near = near_negatives(anchors, positives, threshold=-1.0)
    loss = contrastive_loss(anchors, positives, negative_mask=near, decoupled=decoupled, hardness=hardness)
    loss.backward()
    assert loss.item() == 0 and not anchors.grad.any()


@pytest.mark.parametrize(
    "make",
    [
        lambda teacher: ContrastiveLoss(guide=teacher, false_negative_threshold=0.5),
        lambda teacher: DebiasedLoss(teacher),
        lambda _: WhitenedContrastiveLoss(groups=2),
    ],
)
def test_a_queue_that_would_be_ignored_or_not_guided_is_an_error(make, teacher, make_model):
    encoder = load(make_model("bert"))
    with pytest.raises(UserError, match="queue=null"):
        attached(make(teacher), encoder)(encoder, batch_of(encoder, queue=torch.randn(3, encoder.dim)))
    with pytest.raises(UserError, match="^guide=x: it needs false_negative_threshold$"):
        ContrastiveLoss(guide="x")
