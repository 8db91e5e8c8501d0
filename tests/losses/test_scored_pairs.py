"""The objectives of scored pairs against scipy and loops, their gradients, and their errors."""

import cmath
import math
from types import SimpleNamespace

import pytest
import torch
from scipy.spatial.distance import cosine

from simcse_pl.losses.scored_pairs import AngleObjective, CoSENTObjective, CosineMSEObjective
from simcse_pl.utils.errors import UserError
from tests.conftest import embedded

SCORES = torch.tensor([0.0, 1.5, 5.0, -2.5])


def ranking(similarities, scores, scale):
    """Compute the loss of an order, as CoSENT and AnglE do."""
    total = 1.0
    for one, low in zip(similarities, scores, strict=True):
        for other, high in zip(similarities, scores, strict=True):
            total += math.exp(scale * (one - other)) if low < high else 0.0
    return math.log(total)


def complex_similarity(first, second):
    """Compute AnglE's angle difference, with complex division."""
    half = len(first) // 2
    z, w = ([complex(x[k], x[k + half]) for k in range(half)] for x in (first, second))
    lengths = [math.sqrt(math.fsum(abs(number) ** 2 for number in one)) for one in (z, w)]
    quotients = [a * b.conjugate() / lengths[1] ** 2 / (lengths[0] / lengths[1]) for a, b in zip(z, w, strict=True)]
    assert all(cmath.isfinite(number) for number in quotients)
    return abs(math.fsum(number.real + number.imag for number in quotients))


def contrast(pairs, scores, scale):
    """Compute AnglE's contrast within the batch, of sentences with a partner and a score of 1 or more."""
    sentences = [sentence for pair in pairs for sentence in pair]
    total = 0.0
    for i, sentence in enumerate(sentences):
        if scores[i // 2] >= 1:
            logits = {j: scale * (1 - cosine(sentence, other)) for j, other in enumerate(sentences) if j != i}
            partner = i + 1 if i % 2 == 0 else i - 1
            total += math.log(math.fsum(map(math.exp, logits.values()))) - logits[partner]
    return total / len(sentences)


@pytest.mark.parametrize("max_score", [5.0, 10.0])
def test_it_is_the_mean_squared_error_of_cosine_and_score(max_score):
    pairs = torch.randn(4, 2, 6, dtype=torch.float64)
    rows = zip(pairs.tolist(), SCORES.tolist(), strict=True)
    expected = sum((1 - cosine(first, second) - score / max_score) ** 2 for (first, second), score in rows) / 4
    objective = CosineMSEObjective(max_score)
    assert objective(embedded(pairs, labels=SCORES)).item() == pytest.approx(expected, rel=1e-12)
    pairs.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: objective(embedded(x, labels=SCORES)), pairs)


NLI = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0])
GRADED = torch.tensor([0.2, 3.0, -1.0, 0.2, 1.0])


@pytest.mark.parametrize("scores", [NLI, GRADED])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_cosent_is_the_order_of_all_pairs(temperature, scores):
    pairs = torch.randn(5, 2, 6, dtype=torch.float64)
    cosines = [1 - cosine(first, second) for first, second in pairs.tolist()]
    objective = CoSENTObjective(temperature)
    loss = objective(embedded(pairs, labels=scores)).item()
    assert loss == pytest.approx(ranking(cosines, scores.tolist(), 1 / temperature), rel=1e-9)
    assert loss == objective(embedded(pairs, labels=3 * scores - 7)).item(), "only the order counts"
    assert torch.autograd.gradcheck(lambda x: objective(embedded(x, labels=scores)), pairs.requires_grad_())


@pytest.mark.parametrize("scores", [NLI, GRADED])
@pytest.mark.parametrize("weights", [(1.0, 30.0, 0.0), (0.0, 0.0, 2.0), (0.5, 0.0, 1.0), (0.0, 1.0, 0.0)])
def test_angle_is_the_weighted_sum_of_its_terms(weights, scores):
    pairs = torch.randn(5, 2, 6, dtype=torch.float64)
    given, labels = pairs.tolist(), scores.tolist()
    terms = {
        "angle": ranking([complex_similarity(*pair) for pair in given], labels, 2.0),
        "in_batch": contrast(given, labels, 2.0),
        "cosine": ranking([1 - cosine(*pair) for pair in given], labels, 2.0),
    }
    objective = AngleObjective(0.5, *weights)
    loss = objective(embedded(pairs, labels=scores)).item()
    assert loss == pytest.approx(math.fsum(w * x for w, x in zip(weights, terms.values(), strict=True)), rel=1e-9)
    kept = {f"objective/{name}": x for (name, x), weight in zip(terms.items(), weights, strict=True) if weight}
    assert {name: x.item() for name, x in objective.curves.items()} == pytest.approx(kept, rel=1e-9)
    assert torch.autograd.gradcheck(lambda x: objective(embedded(x, labels=scores)), pairs.requires_grad_())


@pytest.mark.parametrize("objective", [CoSENTObjective(), AngleObjective(in_batch_weight=0.0, cosine_weight=1.0)])
@pytest.mark.parametrize("rows", [1, 4])
def test_equal_scores_have_loss_0_and_no_gradient(rows, objective):
    pairs = torch.randn(rows, 2, 6, requires_grad=True)
    loss = objective(embedded(pairs, labels=torch.full((rows,), 0.5)))
    loss.backward()
    assert loss.item() == 0 and not pairs.grad.any()


@pytest.mark.parametrize("labels", [torch.zeros(4), torch.ones(4), NLI[:4]])
def test_pairs_of_zeros_and_equal_pairs_have_finite_gradients(labels):
    pairs = torch.randn(4, 2, 6)
    pairs[0], pairs[1, 1], pairs[2, 1] = 0, 0, pairs[2, 0]
    for kind in (CoSENTObjective, AngleObjective):
        x = pairs.clone().requires_grad_()
        loss = kind()(embedded(x, labels=labels))
        loss.backward()
        assert loss.isfinite() and x.grad.isfinite().all()


@pytest.mark.parametrize("objective", [CosineMSEObjective, CoSENTObjective, AngleObjective])
def test_a_batch_without_scores_and_an_odd_dimension_are_errors(objective):
    for labels in (None, torch.tensor([0, 1, 1, 0])):
        with pytest.raises(UserError, match=" needs a score for every pair: set data.score_column$"):
            objective()(embedded(torch.randn(4, 2, 6), labels=labels))
    with pytest.raises(UserError, match="^objective=angle: it needs an even number of dimensions, but the model has 7"):
        AngleObjective().attach(SimpleNamespace(hidden_size=7))


def test_scores_above_the_largest_are_errors():
    pairs = torch.randn(4, 2, 6)
    largest = "^objective.max_score=1: a row has score 1.5: set objective.max_score to the largest score$"
    for labels, message in ((SCORES, largest), (-SCORES, "a row has score -1.5")):
        with pytest.raises(UserError, match=message):
            CosineMSEObjective()(embedded(pairs, labels=labels))
