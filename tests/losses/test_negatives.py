"""Contrastive objectives with other negatives, against loops in float64, and inside a training step."""

import pytest
import torch
from simcse_pl.losses.negatives import GaussianNegatives, MixedNegatives, NegativesWithoutDropout
from simcse_pl.losses.objectives import ContrastiveObjective
from torch.nn.functional import cosine_similarity

from simcse_pl.cpu.layers import use_fast_dropout
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from tests.conftest import adamw, embedded

TEMPERATURE = 0.3


def similarity(first, second, kind="cosine"):
    return (cosine_similarity(first, second, dim=0) if kind == "cosine" else first @ second) / TEMPERATURE


def mean_loss(own, negatives):
    """Return the mean of -log(e^own / (e^own + sum e^negative)) over the rows."""
    losses = [torch.stack([one, *others]).logsumexp(0) - one for one, others in zip(own, negatives, strict=True)]
    return torch.stack(losses).mean()


def assert_equal_with_gradients(loss, expected, embeddings):
    torch.testing.assert_close(loss, expected)
    ours, theirs = (torch.autograd.grad(one, embeddings)[0] for one in (loss, expected))
    assert theirs.norm() > 1e-3
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", ["cosine", "dot"])
@pytest.mark.parametrize("queued", [0, 2])
def test_noise_is_a_further_negative_of_all_anchors(queued, kind):
    x = torch.randn(4, 3, 6, dtype=torch.float64, requires_grad=True)
    queue = torch.randn(queued, 6, dtype=torch.float64) if queued else None
    objective = GaussianNegatives(5, 2.0, temperature=TEMPERATURE, similarity=kind)
    torch.manual_seed(3)
    loss = objective(embedded(x, queue=queue))
    torch.manual_seed(3)
    noise = (2.0 * torch.randn(5, 6)).double()
    own = [similarity(row[0], row[1], kind) for row in x]
    negatives = [
        [similarity(x[i, 0], x[j, 1], kind) for j in range(4) if j != i]
        + [similarity(x[i, 0], x[j, 2], kind) for j in range(4)]
        + [similarity(x[i, 0], key, kind) for key in (*noise, *(() if queue is None else queue))]
        for i in range(4)
    ]
    assert_equal_with_gradients(loss, mean_loss(own, negatives), x)
    assert objective(embedded(x, queue=queue)) != loss, "each step has its own noise"


def mixcse(x, share, kind="cosine"):
    """Compute MixCSE as its released code does, from the embeddings [rows, 2, dim]."""
    rows, mixed = len(x), x.detach()
    own, negatives = [similarity(row[0], row[1], kind) for row in x], []
    for i in range(rows):
        negatives.append([similarity(x[i, 0], x[j, 1], kind) for j in range(rows) if j != i])
        for j in range(rows):
            after = (j + 1) % rows
            mixture = share * mixed[j, 1] + (1 - share) * mixed[after, 1]
            negatives[i].append(x.new_zeros(()) if i == after else similarity(x[i, 0], mixture, kind))
        mixture = share * mixed[i, 0] + (1 - share) * mixed[(i + 1) % rows, 0]
        for j in range(rows):
            negatives[i].append(x.new_zeros(()) if j == (i + 1) % rows else similarity(mixture, x[j, 1], kind))
    return mean_loss(own, negatives)


@pytest.mark.parametrize("kind", ["cosine", "dot"])
@pytest.mark.parametrize(("rows", "share"), [(5, 0.2), (5, 0.7), (2, 0.2), (1, 0.2)])
def test_mixtures_are_those_of_neighbours_in_both_directions(rows, share, kind):
    x = torch.randn(rows, 2, 6, dtype=torch.float64, requires_grad=True)
    objective = MixedNegatives(share, temperature=TEMPERATURE, similarity=kind)
    assert_equal_with_gradients(objective(embedded(x)), mixcse(x, share, kind), x)


def test_mixtures_are_beside_hard_negatives_and_duplicates_that_are_left_out():
    x = torch.randn(4, 3, 6, dtype=torch.float64)
    ids = torch.arange(12).view(4, 3, 1).repeat(1, 1, 2)
    ids[1, 1] = ids[0, 1]  # the positives of rows 0 and 1 are equal
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    whole, masked, plain, plain_masked = (
        kind(temperature=TEMPERATURE, mask_duplicates=left_out)(embedded(x, inputs))
        for kind in (MixedNegatives, ContrastiveObjective)
        for left_out in (False, True)
    )
    assert whole > masked > plain_masked and whole > plain > plain_masked


@pytest.fixture
def make_module(make_model):
    def make(dropout=0.3, **options):
        torch.manual_seed(0)
        rates = {"dropout": dropout, "attention_dropout": dropout}
        encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", head="mlp_train_only", **rates)
        return SimCSEModule(encoder, NegativesWithoutDropout(TEMPERATURE), adamw(), **options)

    return make


def rows():
    ids = torch.randint(5, 60, (6, 1, 9)).repeat(1, 2, 1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}


@pytest.mark.parametrize("options", [{}, {"chunk_size": 4}, {"gradient_checkpointing": True}])
def test_negatives_are_the_anchors_without_dropout(make_module, options):
    module = make_module(**options)
    module.prepare()
    use_fast_dropout(module.encoder.backbone)
    assert not list(module.objective.parameters()) and not module.objective.state_dict(), "the encoder is saved once"
    assert module.objective.chunk_size == options.get("chunk_size")
    batch = rows()
    torch.manual_seed(5)
    embedded_batch = module.embed(batch)
    loss = module.objective(embedded_batch)
    gradient = torch.autograd.grad(loss, list(module.encoder.backbone.parameters()), allow_unused=True)
    assert module.encoder.backbone.training, "dropout is on again"

    torch.manual_seed(5)
    noisy = module.embed(batch).embeddings
    module.encoder.backbone.eval()
    plain = module.encoder({name: x[:, 0] for name, x in batch.items()})
    module.encoder.backbone.train()
    own = [similarity(row[0], row[1]) for row in noisy]
    assert max(own) < 1 / TEMPERATURE - 0.01, "the two embeddings differ"
    negatives = [[similarity(plain[i], plain[j]) for j in range(6) if j != i] for i in range(6)]
    expected = mean_loss(own, negatives)
    torch.testing.assert_close(loss, expected)
    theirs = torch.autograd.grad(expected, list(module.encoder.backbone.parameters()), allow_unused=True)
    for one, other in zip(gradient, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_half_precision_keeps_similarities_in_float32(make_module):
    module = make_module(dropout=0.0)
    module.prepare()
    batch = rows()
    with torch.autocast("cpu", torch.bfloat16):
        half, _ = module.loss(batch)
    full, _ = module.loss(batch)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, full, rtol=2e-2, atol=0)
