"""Distillation against loops over the formulas."""

import math
from functools import partial

import pytest
import torch

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.distillation import EmbeddingDistillation, MarginMSE
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role
from tests.conftest import SENTENCES
from tests.losses.loops import similarity
from tests.losses.networks import attached

ROWS = [tuple(SENTENCES[number : number + 4]) for number in range(3)]
ROLES = (Role.ANCHOR, Role.POSITIVE, Role.NEGATIVE, Role.NEGATIVE)


@pytest.fixture
def teacher(make_model, tmp_path):
    """A saved encoder that normalizes, with large random weights."""
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", normalize=True)
    torch.nn.init.normal_(encoder.backbone.embeddings.word_embeddings.weight)
    encoder.save_pretrained(tmp_path / "teacher")
    return tmp_path / "teacher"


@pytest.fixture
def longer_teacher(teacher):
    """The teacher without normalization."""
    SentenceEncoder.from_pretrained(teacher, normalize=False).save_pretrained(teacher.parent / "longer")
    return teacher.parent / "longer"


@pytest.fixture
def encoder(make_model):
    """The encoder to train."""
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls")


def batch_of(encoder):
    """Return random vectors for ROWS."""
    vectors = torch.randn(3, 4, 32, dtype=torch.float64, requires_grad=True)
    return EmbeddedBatch(vectors, ROLES, ViewCollator(encoder.tokenizer, 32)(ROWS))


def taught(teacher):
    """Return the teacher's vectors of ROWS as nested lists."""
    model = SentenceEncoder.from_pretrained(teacher)
    return [model.encode(row).double().tolist() for row in ROWS]


def scaled(vector, normalize):
    """Return a vector at length 1 if `normalize`."""
    length = math.hypot(*vector) if normalize else 1
    return [x / length for x in vector]


@pytest.mark.parametrize("teacher_normalizes", [True, False])
@pytest.mark.parametrize("encoder_normalizes", [True, False])
@pytest.mark.parametrize("loss", ["mse", "cosine"])
def test_vectors_are_compared_with_those_of_the_teacher_at_one_length_if_either_has_it(
    loss, encoder_normalizes, teacher_normalizes, teacher, longer_teacher, encoder
):
    encoder.normalize = encoder_normalizes
    name = teacher if teacher_normalizes else longer_teacher
    objective, batch = attached(EmbeddingDistillation(name, loss=loss), encoder), batch_of(encoder)
    unit = encoder_normalizes or teacher_normalizes
    found, expected = objective(batch), []
    for row, theirs in zip(batch.embeddings.tolist(), taught(name), strict=True):
        for a, b in zip(row, theirs, strict=True):
            squares = [(x - y) ** 2 for x, y in zip(scaled(a, unit), scaled(b, unit), strict=True)]
            expected.append(sum(squares) / len(squares) if loss == "mse" else 1 - similarity(a, b))
    assert found.item() == pytest.approx(sum(expected) / len(expected), rel=1e-5)
    assert not list(objective.parameters()) and torch.autograd.grad(found, batch.embeddings)[0].norm() > 0


def test_the_first_dimensions_of_a_truncated_teacher_are_compared_after_a_trained_layer(teacher, encoder, tmp_path):
    SentenceEncoder.from_pretrained(teacher, truncate_dim=5).save_pretrained(tmp_path / "short")
    objective = attached(EmbeddingDistillation(tmp_path / "short"), encoder).double()
    batch = batch_of(encoder)
    own = torch.nn.functional.normalize(objective.projection(batch.embeddings), dim=-1)
    expected = ((own - torch.tensor(taught(tmp_path / "short"))) ** 2).mean()
    torch.testing.assert_close(objective(batch), expected, rtol=1e-5, atol=0)
    (weight, _) = objective.parameters()
    assert torch.autograd.grad(objective(batch), weight)[0].norm() > 0


@pytest.mark.parametrize(("kind", "encoder_normalizes"), [("cosine", False), ("dot", False), ("dot", True)])
def test_margins_are_those_of_the_teacher(kind, encoder_normalizes, longer_teacher, encoder):
    encoder.normalize = encoder_normalizes
    objective, batch = attached(MarginMSE(longer_teacher, similarity=kind), encoder), batch_of(encoder)
    unit = kind == "cosine" or encoder_normalizes
    near = partial(similarity, kind="cosine" if unit else "dot")
    expected = [
        ((near(a, p) - near(a, n)) - (near(ta, tp) - near(ta, tn))) ** 2
        for (a, p, *negatives), (ta, tp, *theirs) in zip(batch.embeddings.tolist(), taught(longer_teacher), strict=True)
        for n, tn in zip(negatives, theirs, strict=True)
    ]
    assert objective(batch).item() == pytest.approx(sum(expected) / len(expected), rel=1e-5)
