"""SimCSE++: the negatives are embedded without dropout, also where activations are recomputed."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from simcse_pl.methods.simcse_pp import NegativesWithoutDropout
from simcse_pl.models.backbone import recompute_layers
from simcse_pl.speed.dropout import use_fast_dropout
from tests.losses.cases import batch_of, load


@pytest.mark.parametrize("how", ["at once", "in chunks", "recomputed"])
def test_negatives_are_the_anchors_without_dropout(how, make_model):
    encoder = load(make_model("bert"), dropout=0.3, attention_dropout=0.3)
    use_fast_dropout(encoder.backbone)
    if how == "recomputed":
        recompute_layers(encoder.backbone)
    loss, weights = NegativesWithoutDropout(0.3), list(encoder.backbone.parameters())
    batch = batch_of(encoder, chunk_size=3 if how == "in chunks" else None)
    value = loss(batch)
    assert not loss.state_dict() and encoder.backbone.training, "dropout is on again"
    encoder.backbone.eval()
    plain = encoder({name: x[:, 0] for name, x in batch.inputs.items()})
    encoder.backbone.train()
    noisy = torch.cosine_similarity(*batch.embeddings.unbind(dim=1))
    cosines = torch.cosine_similarity(plain[:, None], plain, dim=-1)
    targets = torch.arange(len(plain))
    expected = cross_entropy(cosines.scatter(1, targets[:, None], noisy[:, None]) / 0.3, targets)
    torch.testing.assert_close(value, expected)
    ours, theirs = (torch.autograd.grad(x, weights, retain_graph=True, allow_unused=True) for x in (value, expected))
    for gradient, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-3, atol=1e-5)
