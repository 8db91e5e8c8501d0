"""Distillation against loops over the formulas, and what the objectives reject."""

import math

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from simcse_pl.data.collators import ViewCollator
from simcse_pl.losses.distillation import EmbeddingDistillation, MarginMSE
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

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
def encoder(make_model):
    """The encoder to train."""
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls")


def batch_of(encoder, width=32):
    """Return random vectors for ROWS."""
    vectors = torch.randn(3, 4, width, dtype=torch.float64, requires_grad=True)
    return EmbeddedBatch(vectors, ROLES, ViewCollator(encoder.tokenizer, 32)(ROWS))


def taught(teacher):
    """Return the teacher's vectors of ROWS as nested lists."""
    model = SentenceEncoder.from_pretrained(teacher)
    return [model.encode(row).double().tolist() for row in ROWS]


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def scaled(vector, normalize):
    """Return a vector at length 1 if `normalize`."""
    length = math.sqrt(sum(x * x for x in vector)) if normalize else 1
    return [x / length for x in vector]


@pytest.fixture
def longer_teacher(teacher, tmp_path):
    """The teacher without normalization."""
    SentenceEncoder.from_pretrained(teacher, normalize=False).save_pretrained(tmp_path / "longer")
    return tmp_path / "longer"


@pytest.mark.parametrize("teacher_normalizes", [True, False])
@pytest.mark.parametrize("encoder_normalizes", [True, False])
@pytest.mark.parametrize("loss", ["mse", "cosine"])
def test_vectors_are_compared_with_those_of_the_teacher_at_one_length_if_either_has_it(
    loss, encoder_normalizes, teacher_normalizes, teacher, longer_teacher, encoder
):
    encoder.normalize = encoder_normalizes
    name = teacher if teacher_normalizes else longer_teacher
    objective, batch = EmbeddingDistillation(name, loss=loss), batch_of(encoder)
    objective.attach(encoder)
    unit = encoder_normalizes or teacher_normalizes
    found, expected = objective(batch), []
    for row, theirs in zip(batch.embeddings.tolist(), taught(name), strict=True):
        for a, b in zip(row, theirs, strict=True):
            squares = [(x - y) ** 2 for x, y in zip(scaled(a, unit), scaled(b, unit), strict=True)]
            expected.append(sum(squares) / len(squares) if loss == "mse" else 1 - cosine(a, b))
    assert found.item() == pytest.approx(sum(expected) / len(expected), rel=1e-5)
    assert not list(objective.parameters()) and torch.autograd.grad(found, batch.embeddings)[0].norm() > 0


def test_a_truncated_teacher_gives_its_first_dimensions(teacher, encoder, tmp_path):
    SentenceEncoder.from_pretrained(teacher, truncate_dim=5).save_pretrained(tmp_path / "short")
    objective, batch = EmbeddingDistillation(tmp_path / "short"), batch_of(encoder)
    objective.attach(encoder)
    objective.double()
    own = torch.nn.functional.normalize(objective.projection(batch.embeddings), dim=-1)
    expected = ((own - torch.tensor(taught(tmp_path / "short"))) ** 2).mean()
    torch.testing.assert_close(objective(batch), expected, rtol=1e-5, atol=0)


def test_a_head_that_is_dropped_is_an_error(teacher, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp_train_only")
    with pytest.raises(UserError, match="^model.head=mlp_train_only: objective=distillation would not train"):
        EmbeddingDistillation(teacher).attach(encoder)


@pytest.mark.parametrize(("similarity", "encoder_normalizes"), [("cosine", False), ("dot", False), ("dot", True)])
def test_margins_are_those_of_the_teacher(similarity, encoder_normalizes, longer_teacher, encoder):
    encoder.normalize = encoder_normalizes
    objective, batch = MarginMSE(longer_teacher, similarity=similarity), batch_of(encoder)
    objective.attach(encoder)
    unit = similarity == "cosine" or encoder_normalizes
    near = cosine if unit else lambda a, b: sum(x * y for x, y in zip(a, b, strict=True))
    expected = [
        ((near(a, p) - near(a, n)) - (near(ta, tp) - near(ta, tn))) ** 2
        for (a, p, *negatives), (ta, tp, *theirs) in zip(batch.embeddings.tolist(), taught(longer_teacher), strict=True)
        for n, tn in zip(negatives, theirs, strict=True)
    ]
    assert objective(batch).item() == pytest.approx(sum(expected) / len(expected), rel=1e-5)


def test_vectors_of_another_width_pass_through_a_trained_layer(teacher):
    small = AutoModel.from_config(AutoConfig.from_pretrained(teacher, hidden_size=16))
    encoder = SentenceEncoder(small, AutoTokenizer.from_pretrained(teacher), "cls")
    objective, batch = EmbeddingDistillation(teacher), batch_of(encoder, width=16)
    objective.attach(encoder)
    (weight, _) = objective.double().parameters()
    projected = torch.nn.functional.normalize(objective.projection(batch.embeddings), dim=-1)
    expected = ((projected - torch.tensor(taught(teacher))) ** 2).mean()
    torch.testing.assert_close(objective(batch), expected, rtol=1e-5, atol=0)
    assert torch.autograd.grad(objective(batch), weight)[0].norm() > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda teacher: EmbeddingDistillation(teacher, loss="l1"), "^objective.loss=l1: choose one of mse, cosine$"),
        (lambda teacher: MarginMSE(teacher, similarity="l2"), "^objective.similarity=l2: choose one of cosine, dot$"),
        (lambda teacher: EmbeddingDistillation(teacher).check_rows(ROLES, "scores"), "=distillation takes no labels"),
        (lambda teacher: MarginMSE(teacher).check_rows(ROLES, "classes"), "^objective=margin_mse takes no labels"),
        (lambda teacher: MarginMSE(teacher).check_rows(ROLES[:2], None), "needs one positive and a negative in each"),
        (lambda teacher: MarginMSE(teacher).check_rows(ROLES[1:], None), "a row needs one anchor, not 0$"),
    ],
)
def test_wrong_options_and_rows_are_errors(make, message, teacher):
    with pytest.raises(UserError, match=message):
        make(teacher)


def test_a_teacher_with_another_vocabulary_is_an_error(teacher, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("roberta"), pooling="cls")
    with pytest.raises(UserError, match="^objective.teacher: its vocabulary must be that of the trained encoder$"):
        EmbeddingDistillation(teacher).attach(encoder)
