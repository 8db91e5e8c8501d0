"""Options of the contrastive loss against loops in float64; tests/properties/test_losses.py has the equations."""

import math

import pytest
import torch

from simcse_pl.losses.functional import contrastive_loss, near_negatives, siamese_softmax_loss, similarity_matrix
from tests.losses.loops import similarity

ROWS, TEMPERATURE = 6, 0.5


def draw(negatives):
    """Draw embeddings, and list their keys with the row of each; a queue has no row."""
    anchors, positives, queue = torch.randn(3, ROWS, 3, dtype=torch.float64)
    hard = torch.randn(ROWS, negatives, 3, dtype=torch.float64)
    keys = [(row, key) for row, key in enumerate(positives.tolist())]
    keys += [(row, key) for row, own in enumerate(hard.tolist()) for key in own]
    return (anchors, positives, hard, queue), keys + [(None, key) for key in queue.tolist()]


@pytest.mark.parametrize("beta", [0.0, 1.5])
@pytest.mark.parametrize(("alpha", "kind"), [(1.0, "cosine"), (0.5, "cosine"), (0.0, "cosine"), (0.5, "dot")])
@pytest.mark.parametrize(("negatives", "masked"), [(0, 0), (2, 0), (2, ROWS * 3), (2, ROWS * 4)])
@pytest.mark.parametrize("decoupled", [False, True])
def test_the_loss_equals_a_loop_over_all_keys(decoupled, negatives, masked, alpha, kind, beta):
    """Hardness weights the terms of negatives by their powers."""
    tensors, keys = draw(negatives)
    own, further = torch.rand(ROWS, dtype=torch.float64) - 0.5, torch.rand(ROWS, 3, dtype=torch.float64) - 0.5
    negative_mask = torch.rand(ROWS, masked) > 0.5  # keys beyond the mask stay
    negative_mask[:, :ROWS].fill_diagonal_(False)
    losses = []
    for i, anchor in enumerate(tensors[0].tolist()):
        terms = [
            (alpha if row == i and j >= ROWS else 1.0) * math.exp(similarity(anchor, key, kind) / TEMPERATURE)
            for j, (row, key) in enumerate(keys)
            if j != i and (j >= masked or not negative_mask[i, j])
        ]
        terms = [term for term in terms if term] + [math.exp(value / TEMPERATURE) for value in further[i].tolist()]
        powers = [term**beta for term in terms]
        mean = math.fsum(powers) / len(powers)
        total = math.fsum(term * power / mean for term, power in zip(terms, powers, strict=True))
        positive = math.exp(own[i].item() / TEMPERATURE)
        losses.append(math.log(total + positive * (not decoupled)) - math.log(positive))
    options = {"temperature": TEMPERATURE, "hard_negative_weight": alpha, "similarity": kind, "decoupled": decoupled}
    options["hardness"] = beta
    loss = contrastive_loss(*tensors, own, further, **options, negative_mask=negative_mask)
    assert loss.item() == pytest.approx(math.fsum(losses) / ROWS)
    halves = []
    for start in (0, 3):  # as on two devices
        anchors, mask, *similarities = (x[start : start + 3] for x in (tensors[0], negative_mask, own, further))
        given = {**options, "label_offset": start, "negative_mask": mask}
        halves.append(contrastive_loss(anchors, *tensors[1:], *similarities, **given))
    torch.testing.assert_close(torch.stack(halves).mean(), loss)
    given = [tensor.requires_grad_() for tensor in (*tensors, own, further)]
    assert torch.autograd.gradcheck(lambda *x: contrastive_loss(*x, **options, negative_mask=negative_mask), given)


@pytest.mark.parametrize("hardness", [1.0, 50.0])
def test_hardness_of_distant_embeddings_is_finite(hardness):
    anchors = torch.eye(4, requires_grad=True)
    loss = contrastive_loss(anchors, -torch.eye(4).roll(1, 0), temperature=0.001, hardness=hardness)
    loss.backward()
    assert loss.isfinite() and anchors.grad.isfinite().all()


@pytest.mark.parametrize("threshold", [0.3, -0.2, 1.0])
@pytest.mark.parametrize("negatives", [0, 2])
def test_near_negatives_are_those_above_the_threshold(negatives, threshold):
    tensors, keys = draw(negatives)
    expected = [
        [row != i and similarity(anchor, key) > threshold for row, key in keys]
        for i, anchor in enumerate(tensors[0].tolist())
    ]
    assert near_negatives(*tensors, threshold=threshold).tolist() == expected
    half = near_negatives(tensors[0][3:], *tensors[1:], threshold=threshold, label_offset=3)
    assert half.tolist() == expected[3:]
    same = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert not near_negatives(same, same, threshold=1.0).any()


@pytest.mark.parametrize("hardness", [0.0, 1.0])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("rows", [1, 4])
def test_an_anchor_without_negatives_has_loss_0_and_no_gradient(rows, decoupled, hardness):
    anchors, positives = torch.randn(rows, 3, requires_grad=True), torch.randn(rows, 3)
    near = near_negatives(anchors, positives, threshold=-1.0)
    loss = contrastive_loss(anchors, positives, negative_mask=near, decoupled=decoupled, hardness=hardness)
    loss.backward()
    assert loss.item() == 0 and not anchors.grad.any()


def test_the_classifiers_gradients_equal_finite_differences():
    first, second = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    weights, labels = torch.randn(3, 9, dtype=torch.float64, requires_grad=True), torch.tensor([0, 2, 1, 0])
    torch.autograd.gradcheck(lambda u, v, w: siamese_softmax_loss(u, v, labels, w), (first, second, weights))


def test_autocast_leaves_similarities_and_the_classifier_in_float32():
    first, second = torch.randn(2, 4, 8).bfloat16()
    labels, weights = torch.tensor([0, 1, 2, 0]), torch.randn(3, 24)
    expected = siamese_softmax_loss(first.float(), second.float(), labels, weights)
    with torch.autocast("cpu", torch.bfloat16):
        scores = similarity_matrix(first.float(), second.float())
        loss = siamese_softmax_loss(first, second, labels, weights)
    torch.testing.assert_close(scores, similarity_matrix(first, second))
    assert loss.dtype == torch.float32 and loss == expected
