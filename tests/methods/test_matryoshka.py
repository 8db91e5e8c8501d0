"""The dimensions and losses of Matryoshka, whose values tests/fidelity has; inner layers are those of a cut encoder."""

import pytest
import torch

from simcse_pl.losses.contrastive import ContrastiveLoss, contrastive_loss
from simcse_pl.methods.matryoshka import InnerLayer, MatryoshkaLoss
from simcse_pl.utils.errors import UserError
from tests.losses.cases import attached, batch_of, load


@pytest.mark.parametrize(
    ("given", "truncate_dim", "dims"),
    [(None, None, [32, 16, 8, 4]), ([8, 4], 8, [8, 4])],
    ids=["by default all dimensions and three fractions", "a truncated encoder needs its own only"],
)
def test_the_numbers_of_dimensions_fit_the_encoder(given, truncate_dim, dims, make_model):
    loss = MatryoshkaLoss(ContrastiveLoss(), given)
    loss.attach(load(make_model("bert"), truncate_dim=truncate_dim))
    assert loss.contrasts and loss.weights == dict.fromkeys(dims, 1.0)


def test_an_inner_layer_needs_one_encoder(make_model):
    encoder, other = load(make_model("bert")), load(make_model("bert"))
    loss, batch = attached(InnerLayer(ContrastiveLoss()), encoder), batch_of(encoder)
    with pytest.raises(UserError, match="set encoders=one"):
        loss(batch.replaced(positive_encoder=other))


@pytest.mark.parametrize(("architecture", "pooling"), [("bert", "first_last"), ("roberta", "mean"), ("mpnet", "cls")])
def test_the_loss_is_that_of_an_encoder_with_the_first_layers(architecture, pooling, make_masked_language_model):
    """The model has 3 layers, so the loss is that of the first or the second."""
    folder = make_masked_language_model(architecture)
    encoder = load(folder, pooling=pooling, head="none")
    loss, batch = attached(InnerLayer(ContrastiveLoss(weight=0.5), kl_weight=0.0), encoder), batch_of(encoder)
    losses = {round(2 * loss(batch).item(), 4) for _ in range(20)}
    cut = [load(folder, pooling=pooling, head="none", num_layers=layers) for layers in (1, 2)]
    expected = [ContrastiveLoss()(*network.embed(batch.inputs).unbind(dim=1)).item() for network in cut]
    assert sorted(losses) == pytest.approx(sorted(expected), abs=2e-4) and len(losses) == 2


def test_plain_tensors_need_no_encoder_if_the_dimensions_are_given():
    anchors, positives = torch.randn(2, 4, 8)
    loss = MatryoshkaLoss(ContrastiveLoss(), [8, 4], [1.0, 0.5])(anchors, positives)
    expected = contrastive_loss(anchors, positives) + 0.5 * contrastive_loss(anchors[:, :4], positives[:, :4])
    torch.testing.assert_close(loss, expected)
    with pytest.raises(UserError, match="needs dims"):
        MatryoshkaLoss(ContrastiveLoss())(anchors, positives)
