"""The objective's settings and the similarities it reports."""

import pytest
import torch
import torch.nn.functional as F

from simcse_pl.errors import UserError
from simcse_pl.losses import contrastive_loss
from simcse_pl.objective import ContrastiveObjective, mean_similarities


@pytest.mark.parametrize("views", [2, 3, 5])
def test_views_are_anchor_positive_and_hard_negatives(views):
    embeddings = torch.randn(4, views, 6)
    expected = contrastive_loss(
        embeddings[:, 0], embeddings[:, 1], embeddings[:, 2:], temperature=0.1, hard_negative_weight=2.0
    )
    assert ContrastiveObjective(0.1, 2.0)(embeddings) == expected


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"hard_negative_weight": -1.0}, "hard_negative_weight"),
        ({"similarity": "euclid"}, "cosine, dot"),
    ],
)
def test_values_out_of_range_are_named(settings, name):
    with pytest.raises(UserError, match=name):
        ContrastiveObjective(**settings)


@pytest.mark.parametrize(("rows", "views"), [(1, 3), (4, 2), (4, 4)])
def test_mean_similarities_equal_the_whole_matrix(rows, views):
    embeddings = torch.randn(rows, views, 6)
    unit = F.normalize(embeddings, dim=-1)
    matrix = torch.einsum("id,jvd->ijv", unit[:, 0], unit[:, 1:])
    own = torch.zeros_like(matrix, dtype=torch.bool)
    own[range(rows), range(rows), 0] = True
    positive, negative = mean_similarities(embeddings)
    torch.testing.assert_close(positive, matrix[own].mean())
    torch.testing.assert_close(negative, matrix[~own].mean())


def test_without_negatives_their_mean_is_no_number():
    assert mean_similarities(torch.randn(1, 2, 6))[1].isnan()
