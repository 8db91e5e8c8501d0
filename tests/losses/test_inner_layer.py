"""The inner layers are those of a cut encoder, and encoders that cannot be cut."""

import pytest
import torch

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.inner_layer import InnerLayer
from simcse_pl.losses.softmax import SoftmaxLoss
from simcse_pl.utils.errors import UserError
from tests.losses.cases import attached, batch_of, load


@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last"])
def test_the_loss_is_that_of_an_encoder_with_the_first_layers(pooling, make_masked_language_model):
    """The model has 3 layers, so the loss is that of the first or the second."""
    folder = make_masked_language_model("bert")
    encoder = load(folder, pooling=pooling, head="none")
    loss, batch = attached(InnerLayer(ContrastiveLoss(), kl_weight=0.0), encoder), batch_of(encoder)
    losses = {round(loss(encoder, batch).item(), 4) for _ in range(20)}
    cut = [load(folder, pooling=pooling, head="none", num_layers=layers) for layers in (1, 2)]
    expected = [ContrastiveLoss()(*network.embed(batch.inputs).unbind(dim=1)).item() for network in cut]
    assert sorted(losses) == pytest.approx(sorted(expected), abs=2e-4) and len(losses) == 2


@pytest.mark.parametrize(
    ("architecture", "options", "message"),
    [
        ("bert", {"num_layers": 1}, "^the model has one layer only"),
        ("bert", {"pooling": "layers_1_2"}, "^pooling=layers_1_2 reads layers that a cut"),
        ("modernbert", {}, "^modernbert normalizes the output of its last layer only"),
        ("llama", {"pooling": "mean", "dropout": None}, "^llama normalizes the output of its last layer only"),
    ],
)
def test_encoders_that_cannot_be_cut_are_one_line(architecture, options, message, make_model):
    with pytest.raises(UserError, match=message):
        InnerLayer(ContrastiveLoss()).attach(load(make_model(architecture), head="none", **options))


def test_the_objective_has_no_parameters_and_its_weight_counts(make_model):
    encoder = load(make_model("bert"))
    with pytest.raises(UserError, match="^objective: SoftmaxLoss has parameters"):
        InnerLayer(SoftmaxLoss()).attach(encoder)
    losses = []
    for weight in (1.0, 0.5):
        torch.manual_seed(0)
        losses.append(InnerLayer(ContrastiveLoss(weight=weight), kl_weight=0.0)(encoder, batch_of(encoder)))
    torch.testing.assert_close(losses[1], losses[0] / 2)
