"""DCLR at its limits; tests/losses/test_all_losses.py has its formula."""

import torch

from simcse_pl.methods.dclr import DebiasedLoss
from tests.losses.cases import attached, batch_of, load


def test_a_probability_of_one_has_a_finite_loss_and_gradient(teacher):
    anchors, positives = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    vectors = [anchors.requires_grad_(), positives.requires_grad_()]
    loss = DebiasedLoss(teacher, temperature=0.01, noise_ratio=0.0)
    loss.guide.embed = lambda _: torch.eye(2)[:, None].expand(-1, 2, -1)  # equal vectors for the views of a row
    value = loss(*vectors)
    assert value.isfinite() and value > 10
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(value, vectors))


def test_a_guide_without_a_pooling_gets_one(make_model):
    assert DebiasedLoss(make_model("bert"), pooling="cls").guide.network.pooling == "cls"


def test_held_out_rows_have_the_loss_without_gradients(make_model, teacher):
    encoder = load(make_model("bert"))
    loss = attached(DebiasedLoss(teacher), encoder)
    losses = []
    for inference in (False, True):
        torch.manual_seed(7)
        with torch.inference_mode(inference):
            losses.append(loss(batch_of(encoder)).item())
    assert losses[0] == losses[1]
