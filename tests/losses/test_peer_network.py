"""The losses of a peer network against PCL's formulas in plain loops, and the peer itself."""

import math
from types import SimpleNamespace

import pytest
import torch
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.losses.peer_network import PeerNetwork
from torch import nn

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role
from simcse_pl.training.module import SimCSEModule
from tests.conftest import SENTENCES, adamw
from tests.losses.test_debiased import cosine, softmax

ANCHOR, POSITIVE, NEGATIVE, OTHER = Role
ROLES = [
    (ANCHOR, POSITIVE),
    (ANCHOR, POSITIVE, OTHER, OTHER),
    (OTHER, NEGATIVE, POSITIVE, ANCHOR, POSITIVE),
]


def infonce(anchors, positives, t):
    rows = [[cosine(anchor, positive) / t for positive in positives] for anchor in anchors]
    return sum(-softmax(row)[i].log() for i, row in enumerate(rows)) / len(rows)


def pcl(ours, theirs, roles, t):
    """Return the loss of embeddings [rows, views, dim] by loops over rows, views and entries."""
    n, anchor = len(ours), roles.index(ANCHOR)
    own = [view for view, role in enumerate(roles) if role in (POSITIVE, OTHER)]

    def distribution(a, b, i):
        scores = [cosine(a[i, anchor], b[i, view]) / t for view in own]
        return softmax(scores + [cosine(a[i, anchor], b[j, anchor]) / t for j in range(n) if j != i])

    loss = infonce(theirs[:, anchor], theirs[:, roles.index(POSITIVE)], t)
    entries = n * (len(own) + n - 1)
    for i in range(n):
        for network in (ours, theirs):
            for k, probability in enumerate(distribution(network, network, i)):
                sigmoid = 1 / (1 + (-probability).exp())  # the probability takes the place of a logit
                loss = loss - (sigmoid if k < len(own) else 1 - sigmoid).log() / entries
        for p, q in (((ours, theirs), (theirs, ours)), ((ours, ours), (theirs, theirs))):
            for one, other in zip(distribution(*p, i), distribution(*q, i), strict=True):
                loss = loss + other * (other.log() - one.log()) / entries
    return loss


@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize("t", [0.05, 0.7])
@pytest.mark.parametrize("rows", [1, 4])
def test_the_loss_and_its_gradient_are_those_of_the_formulas(roles, t, rows):
    ours, theirs = (torch.randn(rows, len(roles), 6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    loss = PeerNetwork(temperature=t)
    loss.peer, loss.pooler = SimpleNamespace(pool_views=lambda *_: theirs), nn.Identity()
    encoder = SimpleNamespace(project=lambda vectors: vectors)
    found = loss(encoder, EmbeddedBatch(ours, roles, {"input_ids": torch.zeros(rows, 1)}))
    expected = pcl(ours, theirs, roles, t)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    inputs = (ours, theirs)
    for own, other in zip(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-8, atol=1e-12)
        assert own.norm() > 1e-3 or (rows, len(roles)) == (1, 2)  # then there is nothing to contrast


@pytest.fixture
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp_train_only", dropout=0.0)


def batch_of(encoder, sentences):
    return ViewCollator(encoder.tokenizer, 16)([(sentence, sentence[:9], sentence[-9:]) for sentence in sentences])


def module_of(encoder, dtype=torch.float32, **options):
    module = SimCSEModule(encoder, ContrastiveObjective(), adamw(), auxiliary=[PeerNetwork()], **options).to(dtype)
    module.prepare()
    return module


def test_the_peer_starts_as_the_encoder_and_both_share_the_head(encoder, monkeypatch):
    module = module_of(encoder)
    term = module.auxiliary[0]
    batch = batch_of(encoder, SENTENCES)
    roles = (ANCHOR, POSITIVE, OTHER)
    with torch.no_grad():
        embedded = module.embed(batch | {"roles": roles})
        cls = [
            term.peer.backbone(**{name: x[:, view] for name, x in batch.items()}).last_hidden_state[:, 0]
            for view in range(3)
        ]
        torch.testing.assert_close(torch.stack(cls, dim=1), embedded.pooled, atol=1e-5, rtol=1e-4)
        pooler, head = term.pooler[0], encoder.projection[0]
        pooled = torch.tanh(torch.stack(cls, dim=1) @ pooler.weight.T + pooler.bias)
        theirs = torch.tanh(pooled @ head.weight.T + head.bias)
        expected = pcl(embedded.embeddings.double(), theirs.double(), roles, 0.05)
        assert term(encoder, embedded).item() == pytest.approx(expected.item(), rel=1e-4)


def test_the_peer_is_trained_and_not_saved(encoder, tmp_path):
    module = module_of(encoder)
    term = module.auxiliary[0]
    loss, curves = module.loss(batch_of(encoder, SENTENCES))
    loss.backward()
    trained = [p for p in module.parameters() if p.requires_grad]
    assert all(p.grad is not None and p.grad.any() for p in trained[:-1])
    assert len(trained) == 2 * len(list(encoder.backbone.parameters())) + 4
    assert not {id(p) for p in term.peer.parameters()} & {id(p) for p in encoder.parameters()}
    assert curves["peer_network"] > 0
    assert any(name.startswith("auxiliary.0.peer.backbone") for name in module.state_dict())
    encoder.save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        term.peer.backbone.embeddings.word_embeddings.weight.zero_()
    saved = SentenceEncoder.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(saved.encode(SENTENCES), encoder.encode(SENTENCES))


def test_chunks_and_length_groups_change_nothing(encoder):
    gradients = []
    for cost, options in ((math.inf, {}), (math.inf, {"chunk_size": 3}), (1, {})):
        torch.manual_seed(2)
        encoder.groups.tokens_per_pass = cost
        module = module_of(encoder, torch.float64, **options)
        loss, _ = module.loss(batch_of(encoder, SENTENCES))
        parameters = [p for p in module.parameters() if p.requires_grad]
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
    for other in gradients[1:]:
        assert (other - gradients[0]).norm() <= 1e-9 * gradients[0].norm() and gradients[0].norm() > 1e-3


def test_half_precision_gives_about_the_same_loss(encoder):
    module = module_of(encoder)
    whole, _ = module.loss(batch_of(encoder, SENTENCES))
    with torch.autocast("cpu", torch.bfloat16):
        half, _ = module.loss(batch_of(encoder, SENTENCES))
    assert half.dtype == torch.float32 and half.item() == pytest.approx(whole.item(), rel=0.03)
