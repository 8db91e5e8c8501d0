"""The dimensions that Matryoshka chooses, and the losses that it rejects; tests/fidelity has its values."""

import pytest

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.methods.matryoshka import MatryoshkaLoss
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
    ("objective", "dims", "head", "message"),
    [
        (ContrastiveLoss(), [8], "mlp", r"^dims=\[8\]: the other dimensions would not be trained"),
        (ContrastiveLoss(), [768, 32], "mlp", r"^dims=\[768, 32\]: the embeddings have 32 dimensions"),
        (ContrastiveLoss(), None, "mlp_train_only", "^model.head=mlp_train_only: the vectors of the saved encoder"),
        (WhitenedContrastiveLoss(groups=4), None, "mlp", "^objective: WhitenedContrastiveLoss needs whole embeddings"),
    ],
)
def test_what_would_not_be_trained_is_an_error(objective, dims, head, message, make_model):
    with pytest.raises(UserError, match=message):
        MatryoshkaLoss(objective, dims).attach(load(make_model("bert"), head=head))
