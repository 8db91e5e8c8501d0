"""The dimensions that Matryoshka chooses, and the losses that it rejects; test_all_losses.py has its formula."""

import pytest

from simcse_pl.losses.combined import SumOfLosses
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.distillation import EmbeddingDistillation
from simcse_pl.losses.matryoshka import MatryoshkaLoss
from simcse_pl.losses.softmax import SoftmaxLoss
from simcse_pl.methods.angle import AngleLoss
from simcse_pl.methods.simcse_pp import NegativesWithoutDropout
from simcse_pl.methods.whitenedcse import WhitenedContrastiveLoss
from simcse_pl.utils.errors import UserError
from tests.losses.cases import load


@pytest.mark.parametrize(
    ("given", "truncate_dim", "dims"),
    [(None, None, [32, 16, 8, 4]), ([8, 4], 8, [8, 4])],
    ids=["by default all dimensions and three fractions", "a truncated encoder needs its own only"],
)
def test_the_numbers_of_dimensions_fit_the_encoder(given, truncate_dim, dims, make_model):
    loss = MatryoshkaLoss(ContrastiveLoss(), given)
    loss.attach(load(make_model("bert"), truncate_dim=truncate_dim))
    assert loss.contrasts and loss.weights == dict.fromkeys(dims, 1.0)


@pytest.mark.parametrize(
    ("options", "head", "message"),
    [
        ({"dims": [32, 4], "weights": [1.0]}, "mlp", r"^weights=\[1.0\]: give one weight for each of dims=\[32, 4\]$"),
        ({"dims": [32, 64]}, "mlp", "^dims: the model has 32 dimensions, not 64$"),
        ({"dims": [8]}, "mlp", r"^dims=\[8\]: the other dimensions would not be trained: add 32, or set model.trunc"),
        ({}, "mlp_train_only", "^model.head=mlp_train_only: the vectors of the saved encoder would not be trained"),
    ],
)
def test_dimensions_that_do_not_fit_are_errors(options, head, message, make_model):
    with pytest.raises(UserError, match=message):
        MatryoshkaLoss(ContrastiveLoss(), **options).attach(load(make_model("bert"), head=head))


@pytest.mark.parametrize(
    "make",
    [
        lambda _: SoftmaxLoss(),
        lambda _: NegativesWithoutDropout(),
        lambda _: WhitenedContrastiveLoss(groups=4),
        lambda teacher: EmbeddingDistillation(teacher, loss="cosine"),
        lambda _: SumOfLosses({"a": ContrastiveLoss(), "b": AngleLoss()}),
    ],
)
def test_losses_that_need_whole_embeddings_are_errors(make, make_model, teacher):
    loss = make(teacher)
    with pytest.raises(UserError, match=f"^objective: {type(loss).__name__} needs whole embeddings"):
        MatryoshkaLoss(loss).attach(load(make_model("bert")))
