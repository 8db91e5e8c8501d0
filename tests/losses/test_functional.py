"""The losses against their papers' equations, written out as loops in float64."""

import math
from itertools import product

import pytest
import torch

from simcse_pl.losses.functional import contrastive_loss, near_negatives, siamese_softmax_loss, similarity_matrix


def similarity(a: list[float], b: list[float], kind: str) -> float:
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return dot if kind == "dot" else dot / math.hypot(*a) / math.hypot(*b)


def equation(anchors, positives, hard_negatives, temperature, alpha, kind):
    """Equations 1, 4 (no hard negatives), 5 (alpha = 1) and 8, as a double loop."""
    h, p, n = anchors.tolist(), positives.tolist(), hard_negatives.tolist()
    losses = []
    for i in range(len(h)):
        denominator = 0.0
        for j in range(len(h)):
            denominator += math.exp(similarity(h[i], p[j], kind) / temperature)
            for negative in n[j]:
                weight = alpha if i == j else 1.0
                denominator += weight * math.exp(similarity(h[i], negative, kind) / temperature)
        losses.append(-math.log(math.exp(similarity(h[i], p[i], kind) / temperature) / denominator))
    return sum(losses) / len(losses)


@pytest.mark.parametrize(
    ("rows", "negatives", "alpha", "kind"),
    [(1, 1, 1.0, "cosine"), *product((2, 7), (0, 1, 3), (0.0, 0.5, 1.0, 2.0), ("cosine", "dot"))],
)
def test_equals_the_equation(rows, negatives, alpha, kind):
    anchors, positives = torch.randn(2, rows, 5, dtype=torch.float64)
    hard = torch.randn(rows, negatives, 5, dtype=torch.float64)
    for temperature in (0.05, 1.0) if kind == "cosine" else (1.0,):
        expected = equation(anchors, positives, hard, temperature, alpha, kind)
        options = {"temperature": temperature, "hard_negative_weight": alpha, "similarity": kind}
        assert contrastive_loss(anchors, positives, hard, **options).item() == pytest.approx(expected, abs=1e-6)
        single = contrastive_loss(anchors.float(), positives.float(), hard.float(), **options)
        assert single.item() == pytest.approx(expected, abs=1e-4)


def others_of(i, positives, hard, queue):
    """What row i is contrasted with, but for its own positive and hard negatives."""
    rows = [j for j in range(len(positives)) if j != i]
    return [positives[j].tolist() for j in rows] + [own for j in rows for own in hard[j].tolist()] + queue.tolist()


def assert_loss(below, anchors, positives, hard, queue, **options):
    """The mean of the rows, whose sums below the fraction are given; whole, and half by half."""
    pairs = zip(below, anchors.tolist(), positives.tolist(), strict=True)
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
def test_the_decoupled_loss_has_no_positive_in_its_sum(negatives, alpha, kind):
    anchors, positives, queue = torch.randn(3, 6, 3, dtype=torch.float64)
    hard, below = torch.randn(6, negatives, 3, dtype=torch.float64), []
    for i, h in enumerate(anchors.tolist()):
        others = [math.exp(similarity(h, own, kind) / 0.5) for own in others_of(i, positives, hard, queue)]
        below.append(math.fsum(others + [alpha * math.exp(similarity(h, own, kind) / 0.5) for own in hard[i].tolist()]))
    options = {"temperature": 0.5, "hard_negative_weight": alpha, "similarity": kind, "decoupled": True}
    assert_loss(below, anchors, positives, hard, queue, **options)


def test_a_row_without_negatives_has_no_decoupled_loss_and_no_gradient():
    alone, positive = torch.randn(1, 3, requires_grad=True), torch.randn(1, 3)
    loss = contrastive_loss(alone, positive, decoupled=True)
    loss.backward()
    assert loss.item() == 0 and not alone.grad.any()


@pytest.mark.parametrize(("threshold", "negatives", "kind"), [*product((0.3, -0.2, 1.0), (0, 2), ("cosine", "dot"))])
def test_what_is_too_near_to_be_a_negative_is_left_out(threshold, negatives, kind):
    anchors, positives, queue = torch.randn(3, 6, 3, dtype=torch.float64)
    hard, below = torch.randn(6, negatives, 3, dtype=torch.float64), []
    for i, h in enumerate(anchors.tolist()):
        kept = [own for own in others_of(i, positives, hard, queue) if similarity(h, own, "cosine") <= threshold]
        kept += [positives[i].tolist(), *hard[i].tolist()]
        below.append(math.fsum(math.exp(similarity(h, own, kind) / 0.5) for own in kept))
    near = near_negatives(anchors, positives, hard, queue, threshold=threshold)
    assert_loss(below, anchors, positives, hard, queue, temperature=0.5, similarity=kind, negative_mask=near)
    half = near_negatives(anchors[3:], positives, hard, queue, threshold=threshold, label_offset=3)
    assert half.equal(near[3:])


def test_what_is_as_near_as_the_threshold_is_a_negative():
    same = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert not near_negatives(same, same, threshold=1.0).any()


def test_what_is_left_out_is_in_no_sum_and_the_queue_beside_it_is():
    anchors, positives, queue = torch.randn(3, 4, 5, dtype=torch.float64)
    hard = torch.randn(4, 2, 5, dtype=torch.float64)
    negative_mask = torch.rand(4, 12) > 0.5
    negative_mask[range(4), range(4)] = False
    keys = [*positives.tolist(), *hard.flatten(0, 1).tolist(), *queue.tolist()]
    expected = 0.0
    for i, anchor in enumerate(anchors.tolist()):
        kept = [key for j, key in enumerate(keys) if j >= 12 or not negative_mask[i, j]]
        below = math.fsum(math.exp(similarity(anchor, key, "cosine")) for key in kept)
        expected += (math.log(below) - similarity(anchor, keys[i], "cosine")) / 4
    loss = contrastive_loss(anchors, positives, hard, queue, temperature=1.0, negative_mask=negative_mask)
    assert loss.item() == pytest.approx(expected)


def test_the_weight_is_of_hard_negatives_and_of_no_queue():
    anchors, positives, queue = torch.randn(3, 4, 5)
    weighted = contrastive_loss(anchors, positives, queue=queue, hard_negative_weight=0.5)
    torch.testing.assert_close(weighted, contrastive_loss(anchors, positives, queue=queue))


def test_where_nothing_is_a_negative_there_is_nothing_to_lose():
    """All is nearer than -1, and has no gradient from the threshold either."""
    for decoupled in (False, True):
        anchors = torch.randn(4, 3, requires_grad=True)
        positives = torch.randn(4, 3)
        near = near_negatives(anchors, positives, threshold=-1.0)
        loss = contrastive_loss(anchors, positives, negative_mask=near, decoupled=decoupled)
        loss.backward()
        assert loss.item() == 0 and not anchors.grad.any()


@pytest.mark.parametrize(("temperature", "kind"), [(0.05, "cosine"), (1.0, "cosine"), (2.0, "dot")])
def test_a_queue_is_as_negatives_of_every_row(temperature, kind):
    anchors, positives, queue = torch.randn(3, 4, 5, dtype=torch.float64)
    options = {"temperature": temperature, "similarity": kind}
    expected = contrastive_loss(anchors, torch.cat([positives, queue]), **options)  # as rows that are no anchors
    torch.testing.assert_close(contrastive_loss(anchors, positives, queue=queue, **options), expected)


def test_the_papers_settings_are_the_defaults():
    anchors, positives = torch.randn(2, 4, 5)
    hard = torch.randn(4, 2, 5)
    stated = {"temperature": 0.05, "hard_negative_weight": 1.0, "similarity": "cosine", "label_offset": 0}
    assert contrastive_loss(anchors, positives, hard) == contrastive_loss(anchors, positives, hard, **stated)
    assert torch.equal(similarity_matrix(anchors, positives), similarity_matrix(anchors, positives, "cosine"))


def test_no_hard_negatives_is_an_empty_set_of_them():
    anchors, positives = torch.randn(2, 4, 5)
    assert contrastive_loss(anchors, positives) == contrastive_loss(anchors, positives, torch.empty(4, 0, 5))


def test_alone_in_the_batch_there_is_nothing_to_lose():
    anchors, positives = torch.randn(2, 1, 5)
    assert contrastive_loss(anchors, positives).item() == 0


def test_rows_of_a_batch_add_up():
    anchors, positives = torch.randn(2, 6, 5, dtype=torch.float64)
    hard = torch.randn(6, 2, 5, dtype=torch.float64)
    options = {"hard_negative_weight": 3.0}
    parts = [contrastive_loss(anchors[i : i + 2], positives, hard, label_offset=i, **options) for i in (0, 2, 4)]
    assert torch.stack(parts).mean().item() == pytest.approx(
        contrastive_loss(anchors, positives, hard, **options).item()
    )


def test_gradients_equal_finite_differences():
    anchors, positives = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    hard = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(
        lambda *x: contrastive_loss(*x, temperature=0.5, hard_negative_weight=0.3), (anchors, positives, hard)
    )


def test_gradients_are_finite_where_own_negatives_take_no_part():
    embeddings = torch.randn(3, 4, requires_grad=True)
    contrastive_loss(embeddings, embeddings + 1, torch.randn(3, 1, 4), hard_negative_weight=0.0).backward()
    assert torch.isfinite(embeddings.grad).all()


def test_mixed_precision_leaves_the_logits_alone():
    x = torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        scores = similarity_matrix(x, x)
    torch.testing.assert_close(scores, similarity_matrix(x, x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_taken_up(dtype):
    x = torch.randn(4, 8)
    scores = similarity_matrix(x.to(dtype), x.to(dtype))
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, similarity_matrix(x, x), atol=0.02, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", ["cosine", "dot"])
@pytest.mark.parametrize(
    "embeddings",
    [
        torch.zeros(4, 3, 8),
        torch.ones(4, 3, 8),
        torch.cat([torch.zeros(1, 3, 8), torch.eye(9, 8).view(3, 3, 8)]),
    ],
    ids=["zeros", "all equal", "a row of zeros"],
)
def test_no_embeddings_make_a_loss_or_a_gradient_that_is_not_finite(embeddings, kind, dtype):
    embeddings = embeddings.to(dtype, copy=True).requires_grad_()
    options = {"temperature": 0.001, "similarity": kind}
    loss = contrastive_loss(embeddings[:, 0], embeddings[:, 1], embeddings[:, 2:], embeddings[:, 0], **options)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(embeddings.grad).all()


def test_embeddings_that_are_all_equal_are_told_apart_by_chance():
    embeddings = torch.full((2, 6, 8), 0.3)
    assert contrastive_loss(*embeddings, temperature=0.001).item() == pytest.approx(math.log(6))


def test_a_row_of_zeros_has_no_gradient():
    anchors = torch.randn(3, 8)
    anchors[1] = 0
    contrastive_loss(anchors.requires_grad_(), torch.randn(3, 8), temperature=0.001).backward()
    assert (anchors.grad[1] == 0).all() and (anchors.grad[[0, 2]] != 0).any()


@pytest.mark.parametrize("size", [60_000.0, 1e-7])
def test_the_ends_of_float16_have_directions(size):
    x = torch.randn(4, 300).sign().mul(size).half()  # its square is out of range, and so is its sum of squares
    torch.testing.assert_close(similarity_matrix(x, x), similarity_matrix(x.double(), x.double()).float())


def sentence_berts_equation(first, second, labels, weights):
    """The mean of -log o_label with o = softmax(W_t (u, v, |u - v|)), pair by pair."""
    losses = []
    for u, v, label in zip(first.tolist(), second.tolist(), labels.tolist(), strict=True):
        features = [*u, *v, *(abs(a - b) for a, b in zip(u, v, strict=True))]
        scores = [math.fsum(w * x for w, x in zip(row, features, strict=True)) for row in weights.tolist()]
        losses.append(-math.log(math.exp(scores[label]) / math.fsum(math.exp(score) for score in scores)))
    return math.fsum(losses) / len(losses)


@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (5, 3), (8, 5)])
def test_the_classifier_equals_sentence_berts_equation(rows, classes):
    first, second = torch.randn(2, rows, 6, dtype=torch.float64)
    labels, weights = torch.randint(classes, (rows,)), torch.randn(classes, 18, dtype=torch.float64)
    expected = sentence_berts_equation(first, second, labels, weights)
    assert siamese_softmax_loss(first, second, labels, weights).item() == pytest.approx(expected, abs=1e-6)
    single = siamese_softmax_loss(first.float(), second.float(), labels, weights.float())
    assert single.item() == pytest.approx(expected, abs=1e-4)


def test_the_classifiers_gradients_equal_finite_differences():
    first, second = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    weights, labels = torch.randn(3, 9, dtype=torch.float64, requires_grad=True), torch.tensor([0, 2, 1, 0])
    torch.autograd.gradcheck(lambda u, v, w: siamese_softmax_loss(u, v, labels, w), (first, second, weights))


def test_two_equal_sentences_have_finite_gradients():
    first = torch.randn(2, 3, requires_grad=True)
    siamese_softmax_loss(first, first.detach(), torch.tensor([0, 1]), torch.randn(2, 9)).backward()
    assert torch.isfinite(first.grad).all()


def test_mixed_precision_leaves_the_classifier_alone():
    first, second = torch.randn(2, 4, 8).bfloat16()
    labels, weights = torch.tensor([0, 1, 2, 0]), torch.randn(3, 24)
    expected = siamese_softmax_loss(first.float(), second.float(), labels, weights)
    with torch.autocast("cpu", torch.bfloat16):
        loss = siamese_softmax_loss(first, second, labels, weights)
    assert loss.dtype == torch.float32 and loss == expected
