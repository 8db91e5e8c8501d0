"""Options of the contrastive loss against loops in float64; tests/properties/test_losses.py has the equations."""

import math
from itertools import product

import pytest
import torch

from simcse_pl.losses.functional import contrastive_loss, near_negatives, siamese_softmax_loss, similarity_matrix


def similarity(a: list[float], b: list[float], kind: str) -> float:
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return dot if kind == "dot" else dot / math.hypot(*a) / math.hypot(*b)


def negatives_of_other_rows(i, positives, hard, queue):
    rows = [j for j in range(len(positives)) if j != i]
    return [positives[j].tolist() for j in rows] + [own for j in rows for own in hard[j].tolist()] + queue.tolist()


def assert_loss(denominators, anchors, positives, hard, queue, **options):
    """Compare the loss of all rows, and of two halves as on two devices, with its value for given denominators."""
    pairs = zip(denominators, anchors.tolist(), positives.tolist(), strict=True)
    rows = [math.log(own) - similarity(h, p, options["similarity"]) / options["temperature"] for own, h, p in pairs]
    expected = pytest.approx(math.fsum(rows) / len(rows))
    assert contrastive_loss(anchors, positives, hard, queue, **options).item() == expected
    negative_mask = options.pop("negative_mask", torch.zeros(6, 0, dtype=torch.bool))
    halves = [
        contrastive_loss(
            anchors[own], positives, hard, queue, label_offset=own.start, negative_mask=negative_mask[own], **options
        )
        for own in (slice(0, 3), slice(3, 6))
    ]
    assert torch.stack(halves).mean().item() == expected


@pytest.mark.parametrize(("negatives", "alpha", "kind"), [*product((0, 2), (1.0, 0.5), ("cosine", "dot"))])
def test_decoupled_loss_has_no_positive_in_the_denominator(negatives, alpha, kind):
    anchors, positives, queue = torch.randn(3, 6, 3, dtype=torch.float64)
    hard, denominators = torch.randn(6, negatives, 3, dtype=torch.float64), []
    for i, h in enumerate(anchors.tolist()):
        terms = [math.exp(similarity(h, x, kind) / 0.5) for x in negatives_of_other_rows(i, positives, hard, queue)] + [
            alpha * math.exp(similarity(h, x, kind) / 0.5) for x in hard[i].tolist()
        ]
        denominators.append(math.fsum(terms))
    options = {"temperature": 0.5, "hard_negative_weight": alpha, "similarity": kind, "decoupled": True}
    assert_loss(denominators, anchors, positives, hard, queue, **options)


@pytest.mark.parametrize(("threshold", "negatives", "kind"), [*product((0.3, -0.2, 1.0), (0, 2), ("cosine", "dot"))])
def test_near_negatives_are_those_above_the_threshold(threshold, negatives, kind):
    anchors, positives, queue = torch.randn(3, 6, 3, dtype=torch.float64)
    hard, denominators = torch.randn(6, negatives, 3, dtype=torch.float64), []
    for i, h in enumerate(anchors.tolist()):
        others = negatives_of_other_rows(i, positives, hard, queue)
        kept = [x for x in others if similarity(h, x, "cosine") <= threshold]
        kept += [positives[i].tolist(), *hard[i].tolist()]
        denominators.append(math.fsum(math.exp(similarity(h, x, kind) / 0.5) for x in kept))
    near = near_negatives(anchors, positives, hard, queue, threshold=threshold)
    assert_loss(denominators, anchors, positives, hard, queue, temperature=0.5, similarity=kind, negative_mask=near)
    half = near_negatives(anchors[3:], positives, hard, queue, threshold=threshold, label_offset=3)
    assert half.equal(near[3:])


def test_a_cosine_equal_to_the_threshold_is_a_negative():
    same = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert not near_negatives(same, same, threshold=1.0).any()


def test_masked_keys_are_left_out_and_columns_beyond_the_mask_stay():
    anchors, positives, queue = torch.randn(3, 4, 5, dtype=torch.float64)
    hard = torch.randn(4, 2, 5, dtype=torch.float64)
    negative_mask = torch.rand(4, 12) > 0.5
    negative_mask[range(4), range(4)] = False
    keys = [*positives.tolist(), *hard.flatten(0, 1).tolist(), *queue.tolist()]
    expected = 0.0
    for i, anchor in enumerate(anchors.tolist()):
        kept = [key for j, key in enumerate(keys) if j >= 12 or not negative_mask[i, j]]
        denominator = math.fsum(math.exp(similarity(anchor, key, "cosine")) for key in kept)
        expected += (math.log(denominator) - similarity(anchor, keys[i], "cosine")) / 4
    loss = contrastive_loss(anchors, positives, hard, queue, temperature=1.0, negative_mask=negative_mask)
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("rows", [1, 4])
def test_an_anchor_without_negatives_has_loss_0_and_no_gradient(rows, decoupled):
    anchors, positives = torch.randn(rows, 3, requires_grad=True), torch.randn(rows, 3)
    near = near_negatives(anchors, positives, threshold=-1.0)
    loss = contrastive_loss(anchors, positives, negative_mask=near, decoupled=decoupled)
    loss.backward()
    assert loss.item() == 0 and not anchors.grad.any()


def test_the_papers_settings_are_the_defaults():
    anchors, positives = torch.randn(2, 4, 5)
    hard = torch.randn(4, 2, 5)
    stated = {"temperature": 0.05, "hard_negative_weight": 1.0, "similarity": "cosine", "label_offset": 0}
    assert contrastive_loss(anchors, positives, hard) == contrastive_loss(anchors, positives, hard, **stated)
    assert contrastive_loss(anchors, positives) == contrastive_loss(anchors, positives, torch.empty(4, 0, 5))


def test_the_loss_of_a_batch_is_the_mean_over_its_rows_on_all_devices():
    anchors, positives = torch.randn(2, 6, 5, dtype=torch.float64)
    hard = torch.randn(6, 2, 5, dtype=torch.float64)
    options = {"hard_negative_weight": 3.0}
    parts = [contrastive_loss(anchors[i : i + 2], positives, hard, label_offset=i, **options) for i in (0, 2, 4)]
    whole = contrastive_loss(anchors, positives, hard, **options).item()
    assert torch.stack(parts).mean().item() == pytest.approx(whole)


@pytest.mark.parametrize("decoupled", [False, True])
def test_gradients_equal_finite_differences(decoupled):
    anchors, positives = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    hard = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    options = {"temperature": 0.5, "hard_negative_weight": 0.3, "decoupled": decoupled}
    torch.autograd.gradcheck(lambda *x: contrastive_loss(*x, **options), (anchors, positives, hard))


def test_autocast_leaves_similarities_in_float32():
    x = torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        scores = similarity_matrix(x, x)
    torch.testing.assert_close(scores, similarity_matrix(x, x))


@pytest.mark.parametrize("size", [60_000.0, 1e-7])
def test_similarities_hold_at_the_ends_of_float16s_range(size):
    x = torch.randn(4, 300).sign().mul(size).half()  # squares are out of range
    torch.testing.assert_close(similarity_matrix(x, x), similarity_matrix(x.double(), x.double()).float())


def test_the_classifiers_gradients_equal_finite_differences():
    first, second = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    weights, labels = torch.randn(3, 9, dtype=torch.float64, requires_grad=True), torch.tensor([0, 2, 1, 0])
    torch.autograd.gradcheck(lambda u, v, w: siamese_softmax_loss(u, v, labels, w), (first, second, weights))


def test_autocast_leaves_the_classifier_in_float32():
    first, second = torch.randn(2, 4, 8).bfloat16()
    labels, weights = torch.tensor([0, 1, 2, 0]), torch.randn(3, 24)
    expected = siamese_softmax_loss(first.float(), second.float(), labels, weights)
    with torch.autocast("cpu", torch.bfloat16):
        loss = siamese_softmax_loss(first, second, labels, weights)
    assert loss.dtype == torch.float32 and loss == expected
