"""The loss of an inner layer against the vectors of an encoder that is cut to that layer."""

import itertools
import math

import pytest
import torch

from simcse_pl.losses.inner_layer import InnerLayer
from simcse_pl.losses.objectives import ContrastiveObjective, SoftmaxObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import default_roles
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw
from tests.losses.loops import contrast, softmax


def module_of(encoder, **options):
    loss = InnerLayer(ContrastiveObjective(temperature=0.3), kl_weight=0.7, temperature=0.5)
    return SimCSEModule(encoder, ContrastiveObjective(), adamw(), auxiliary=[loss], **options)


def batch_of(encoder, rows=4):
    tokens = encoder.templates.tokens_of([*SENTENCES[:rows], *SENTENCES[-rows:]], 20)
    pairs = [tokens[place] for row in range(rows) for place in (row, row + rows)]
    return {name: x.view(rows, 2, -1) for name, x in encoder.templates.batch(pairs, 2).items()}


def by_loops(last, inner):
    """Return the objective of the inner vectors plus the divergence, from lists of numbers."""
    divergences = []
    for whole, cut in zip(itertools.chain(*last), itertools.chain(*inner), strict=True):
        both = (softmax([x / 0.5 for x in vector]) for vector in (whole, cut))
        divergences.append(sum(p * math.log(p / q) for p, q in zip(*both, strict=True)))
    return contrast(*zip(*inner, strict=True), 0.3) + 0.7 * 0.5 * sum(divergences) / len(divergences)


@pytest.mark.parametrize(("pooling", "head"), [("cls", "mlp"), ("mean", "none"), ("first_last", "none")])
@pytest.mark.parametrize("chunk_size", [None, 3])
def test_the_loss_is_that_of_a_cut_encoder(pooling, head, chunk_size, make_model):
    """The model has 3 layers, so the loss is that of the first or the second."""
    folder = make_model("bert")
    encoder = SentenceEncoder.from_pretrained(folder, pooling=pooling, head=head, dropout=0.0)
    with torch.no_grad():
        for weight in encoder.parameters():  # random layers hardly change the vectors
            weight.add_(0.1 * torch.randn_like(weight))
    module = module_of(encoder, chunk_size=chunk_size)
    batch = batch_of(encoder)
    embedded = module.embed(batch)
    found = {round(float(module.auxiliary[0](encoder, embedded)), 4) for _ in range(20)}
    expected = set()
    for layers in (1, 2):
        cut = SentenceEncoder.from_pretrained(folder, pooling=pooling, head=head, num_layers=layers, dropout=0.0)
        cut.load_state_dict(encoder.state_dict(), strict=False)
        inner = cut({name: x.flatten(0, 1) for name, x in batch.items()}).view(4, 2, -1)
        expected.add(round(by_loops(embedded.embeddings.tolist(), inner.tolist()), 4))
    assert len(expected) == 2
    torch.testing.assert_close(sorted(found), sorted(expected), atol=2e-4, rtol=0)


def test_the_last_layer_is_constant_in_the_divergence(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", dropout=0.0)
    module = module_of(encoder)
    module.auxiliary[0](encoder, module.embed(batch_of(encoder))).backward()
    layers = encoder.backbone.encoder.layer
    assert layers[0].output.dense.weight.grad.abs().max() > 0
    assert layers[2].output.dense.weight.grad is None or not layers[2].output.dense.weight.grad.any()


@pytest.mark.parametrize(
    ("architecture", "options", "message"),
    [
        ("bert", {"num_layers": 1}, "^auxiliary.inner_layer: the model has one layer only"),
        ("bert", {"pooling": "layers_1_2"}, "^auxiliary.inner_layer: pooling=layers_1_2 reads layers that a cut"),
        ("modernbert", {}, "^auxiliary.inner_layer: modernbert normalizes the output of its last layer only"),
        ("llama", {}, "^auxiliary.inner_layer: llama normalizes the output of its last layer only"),
    ],
)
def test_encoders_that_cannot_be_cut_are_one_line(architecture, options, message, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), **{"pooling": "mean"} | options)
    with pytest.raises(UserError, match=message):
        InnerLayer(ContrastiveObjective()).attach(encoder)


def test_the_objective_has_no_parameters(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    with pytest.raises(UserError, match="^auxiliary.inner_layer.objective: SoftmaxObjective has parameters"):
        InnerLayer(SoftmaxObjective()).attach(encoder)


def test_rows_are_those_of_its_objective():
    with pytest.raises(UserError):
        InnerLayer(ContrastiveObjective()).check_rows(default_roles(2)[:1], None)
