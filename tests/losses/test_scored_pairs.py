"""The objective of scored pairs against scipy, its gradients, and its errors."""

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from scipy.spatial.distance import cosine

from simcse_pl.losses.objectives import ContrastiveObjective, SoftmaxObjective
from simcse_pl.losses.scored_pairs import CosineMSEObjective
from simcse_pl.models.roles import default_roles
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT, embedded

SCORES = torch.tensor([0.0, 1.5, 5.0, -2.5])


@pytest.mark.parametrize("max_score", [5.0, 10.0])
def test_it_is_the_mean_squared_error_of_cosine_and_score(max_score):
    pairs = torch.randn(4, 2, 6, dtype=torch.float64)
    rows = zip(pairs.tolist(), SCORES.tolist(), strict=True)
    expected = sum((1 - cosine(first, second) - score / max_score) ** 2 for (first, second), score in rows) / 4
    objective = CosineMSEObjective(max_score)
    assert objective(embedded(pairs, labels=SCORES)).item() == pytest.approx(expected, rel=1e-12)
    pairs.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: objective(embedded(x, labels=SCORES)), pairs)


@pytest.mark.parametrize("max_score", [0.0, -1.0, float("nan")])
def test_a_largest_score_that_is_not_positive_is_an_error(max_score):
    with pytest.raises(UserError, match="^objective.max_score=.*: it must be above 0, and finite$"):
        CosineMSEObjective(max_score)


@pytest.mark.parametrize(
    ("views", "labels", "message"),
    [
        (3, SCORES, "^objective=cosine_mse takes pairs, but rows have 3 sentences: name two in data.columns$"),
        (2, None, "^objective=cosine_mse needs a score for every pair: set data.score_column$"),
        (2, torch.tensor([0, 1, 1, 0]), "^objective=cosine_mse needs a score for every pair"),
        (2, SCORES, "^objective.max_score=1: a row has score 1.5: set objective.max_score to the largest score$"),
        (2, -SCORES, "a row has score -1.5"),
    ],
)
def test_rows_without_valid_scores_are_errors(views, labels, message):
    with pytest.raises(UserError, match=message) as error:
        CosineMSEObjective()(embedded(torch.randn(4, views, 6), labels=labels))
    assert "\n" not in str(error.value)


def test_other_objectives_take_no_scores():
    with pytest.raises(UserError, match="^objective=sbert needs a label for every pair: set data.label_column$"):
        SoftmaxObjective().check_rows(default_roles(2), "scores")
    with pytest.raises(UserError, match="takes no labels: set data.score_column=null, or objective=cosine_mse$"):
        ContrastiveObjective().check_rows(default_roles(2), "scores")


def test_the_config_holds_the_defaults():
    objective = instantiate(OmegaConf.load(ROOT / "conf/objective/cosine_mse.yaml"))
    assert type(objective) is CosineMSEObjective and objective.max_score == CosineMSEObjective().max_score
