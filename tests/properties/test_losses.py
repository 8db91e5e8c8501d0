"""Losses of batches of any shape equal their papers' equations, written as loops in float64."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from simcse_pl.losses.contrastive import contrastive_loss
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.regularizers import cosine_regularization
from simcse_pl.training.curves import mean_similarities
from tests.losses.loops import log_sum_exp, similarity
from tests.properties.strategies import shapes

TEMPERATURES = st.sampled_from([0.001, 0.01, 0.05, 0.3, 1.0, 20.0])
ALPHAS = st.sampled_from([0.0, 0.3, 1.0, 2.0, 100.0])
KINDS = st.sampled_from(["cosine", "dot"])
FULL = st.sampled_from([torch.float32, torch.float64])
SEEDS = st.integers(0, 2**31)


def drawn(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def equation(embeddings, queue, temperature, alpha, kind):
    """Return equations 1, 4, 5 and 8 of the paper, with ESimCSE's queue."""
    rows, losses = embeddings.tolist(), []
    keys = [(key, row, view) for row, (_, *views) in enumerate(rows) for view, key in enumerate(views)]
    keys += [(key, None, 0) for key in queue.tolist()]
    for i, (anchor, positive, *_) in enumerate(rows):
        scores = [similarity(anchor, key, kind) / temperature for key, _, _ in keys]
        weights = [alpha if row == i and view else 1.0 for _, row, view in keys]
        losses.append(log_sum_exp(scores, weights) - similarity(anchor, positive, kind) / temperature)
    return math.fsum(losses) / len(losses)


def loss_of(embeddings, queue=None, temperature=0.05, alpha=1.0, kind="cosine"):
    options = {"temperature": temperature, "hard_negative_weight": alpha, "similarity": kind}
    return contrastive_loss(embeddings[:, 0], embeddings[:, 1], embeddings[:, 2:], queue, **options)


BATCHES = st.tuples(shapes(7, 3, 6), st.integers(0, 4), SEEDS).map(
    lambda given: (
        drawn(given[2], given[0][0], given[0][1] + 1, given[0][2]),
        drawn(given[2] + 1, given[1], given[0][2]),
    )
)


@given(batch=BATCHES, temperature=TEMPERATURES, alpha=ALPHAS, kind=KINDS)
def test_the_contrastive_loss_equals_the_equation(batch, temperature, alpha, kind):
    embeddings, queue = batch
    expected = equation(embeddings, queue, temperature, alpha, kind)
    loss = loss_of(embeddings, queue, temperature, alpha, kind)
    torch.testing.assert_close(loss.item(), expected, rtol=1e-9, atol=1e-9)
    single = loss_of(embeddings.float(), queue.float(), temperature, alpha, kind)
    torch.testing.assert_close(single.item(), expected, rtol=1e-4, atol=1e-5 / temperature)


@given(
    batch=BATCHES, temperature=TEMPERATURES, alpha=ALPHAS, kind=KINDS, dtype=FULL,
    zeros=st.booleans(), equal=st.booleans(), exponent=st.integers(-6, 6),
)  # fmt: skip
def test_losses_and_gradients_are_finite(batch, temperature, alpha, kind, dtype, zeros, equal, exponent):
    embeddings, queue = (x.to(dtype) * 10.0**exponent for x in batch)
    if equal:
        embeddings = embeddings[:1, :1].expand_as(embeddings)
    embeddings = embeddings.clone()
    if zeros:
        embeddings[0] = 0
    loss = loss_of(embeddings.requires_grad_(), queue, temperature, alpha, kind)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(embeddings.grad).all()
    if kind == "cosine":
        lengths = embeddings.detach().norm(dim=-1, keepdim=True)
        bound = 2.01 / temperature / lengths.masked_fill(lengths == 0, torch.inf)  # |d cos / dh| is at most 1 / |h|
        assert (embeddings.grad.norm(dim=-1, keepdim=True) <= bound).all()


@given(batch=BATCHES, dtype=st.sampled_from([torch.float16, torch.float32, torch.float64]), zeros=st.booleans())
def test_mean_similarities_are_those_of_positives_and_negatives(batch, dtype, zeros):
    embeddings = batch[0].to(dtype)
    if zeros:
        embeddings[0] = 0
    views = torch.nn.functional.normalize(embeddings.double(), dim=-1)
    cosines = torch.einsum("id,jkd->ijk", views[:, 0], views[:, 1:])
    positive = torch.zeros_like(cosines, dtype=torch.bool)
    positive[:, :, 0].fill_diagonal_(True)
    expected = cosines[positive].mean(), cosines[~positive].mean()  # NaN without negatives
    curves = mean_similarities(EmbeddedBatch.of(*embeddings.unbind(dim=1)))
    for ours, theirs in zip(curves.values(), expected, strict=True):
        torch.testing.assert_close(ours.item(), theirs.item(), rtol=1e-5, atol=1e-5, equal_nan=True)


@given(shape=shapes(8, 6), seed=SEEDS, zeros=st.integers(0, 3), exponent=st.integers(-12, 12))
def test_cosine_regularization_equals_the_mean_over_pairs_of_words(shape, seed, zeros, exponent):
    words = drawn(seed, *shape)
    words[:zeros] = 0
    rows = words.tolist()
    pairs = [similarity(rows[i], rows[j], "cosine") for i in range(len(rows)) for j in range(len(rows)) if i != j]
    scaled = (words * 10.0**exponent).requires_grad_()
    term = cosine_regularization(scaled)
    term.backward()
    torch.testing.assert_close(term.item(), math.fsum(pairs) / len(rows) ** 2, rtol=1e-9, atol=1e-9)
    assert torch.isfinite(scaled.grad).all() and (scaled.grad[:zeros] == 0).all()
