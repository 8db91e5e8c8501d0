"""The inner layers are those of a cut encoder."""

import pytest

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.methods.matryoshka import InnerLayer
from tests.losses.cases import attached, batch_of, load


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
