"""The objectives' settings, what they refuse, and the similarities that are reported."""

import pytest
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from simcse_pl.losses.functional import contrastive_loss, near_negatives, siamese_softmax_loss
from simcse_pl.losses.objectives import (
    ContrastiveObjective,
    DecoupledContrastiveObjective,
    SoftmaxObjective,
    mean_similarities,
)
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT


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
        ({"temperature": float("inf")}, "temperature"),
        ({"hard_negative_weight": -1.0}, "hard_negative_weight"),
        ({"hard_negative_weight": float("inf")}, "hard_negative_weight"),
        ({"similarity": "euclid"}, "cosine, dot"),
        ({"false_negative_threshold": 90}, "^objective.false_negative_threshold=90: it must be -1 to 1, or null$"),
        ({"false_negative_threshold": float("nan")}, "false_negative_threshold"),
        ({"guide": "x"}, "^objective.guide=x: set objective.false_negative_threshold"),
    ],
)
def test_values_out_of_range_are_named(settings, name):
    with pytest.raises(UserError, match=name):
        ContrastiveObjective(**settings)


def test_dcl_is_simcse_with_its_settings_but_decoupled():
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", ["objective=dcl", "objective.temperature=0.5"])
    objective = instantiate(config.objective)
    assert type(objective) is DecoupledContrastiveObjective
    assert vars(objective) == vars(ContrastiveObjective(0.5))
    embeddings = torch.randn(4, 3, 6)
    views = embeddings[:, 0], embeddings[:, 1], embeddings[:, 2:]
    expected = contrastive_loss(*views, temperature=0.5, decoupled=True)
    assert objective(embeddings) == expected != contrastive_loss(*views, temperature=0.5)


def test_a_threshold_leaves_out_what_is_nearer():
    embeddings = torch.randn(6, 3, 4)
    views = embeddings[:, 0], embeddings[:, 1], embeddings[:, 2:]
    expected = contrastive_loss(*views, negative_mask=near_negatives(*views, threshold=0.5))
    assert ContrastiveObjective(false_negative_threshold=0.5)(embeddings) == expected != contrastive_loss(*views)


def test_a_contrast_refuses_labels():
    with pytest.raises(UserError, match="^a contrast has no use for labels: .*label_column=null"):
        ContrastiveObjective()(torch.randn(4, 2, 6), torch.zeros(4, dtype=torch.int64))


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


def attached(dim=6, **settings):
    objective = SoftmaxObjective(**settings)
    objective.attach(dim)
    return objective


def test_the_classifier_takes_pairs_and_their_labels():
    objective = attached(labels=4)
    embeddings, labels = torch.randn(5, 2, 6), torch.tensor([3, 0, 1, 2, 3])
    expected = siamese_softmax_loss(embeddings[:, 0], embeddings[:, 1], labels, objective.classifier.weight)
    assert objective(embeddings, labels) == expected


def test_the_classifiers_weights_are_those_of_the_equation_and_can_be_saved():
    objective, other = attached(dim=5), attached(dim=5)
    assert {name: tuple(weight.shape) for name, weight in objective.named_parameters()} == {
        "classifier.weight": (3, 15)
    }
    other.load_state_dict(objective.state_dict())
    embeddings, labels = torch.randn(4, 2, 5), torch.tensor([0, 1, 2, 0])
    assert objective(embeddings, labels) == other(embeddings, labels)


def test_the_classifier_learns_what_tells_the_classes_apart():
    labels = torch.arange(90) % 3
    first = torch.randn(90, 6) + 2
    difference = (
        F.one_hot(labels, 3)[:, 1:].repeat_interleave(3, dim=1) * 2.0
    )  # none, half of the dimensions, the other
    objective, embeddings = attached(), torch.stack([first, first + difference], dim=1)
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.05)
    before = objective(embeddings, labels).item()
    for _ in range(100):
        optimizer.zero_grad()
        objective(embeddings, labels).backward()
        optimizer.step()
    assert before > 0.9
    assert objective(embeddings, labels).item() < 0.3


@pytest.mark.parametrize(
    ("views", "labels", "message"),
    [
        (3, [0, 1], "^objective=sbert takes pairs, and rows have 3 sentences: .*data.columns$"),
        (2, None, "^objective=sbert needs a label for every pair: set data.label_column$"),
        (2, [0, 3], "^objective.labels=3: a row has label 3, counted from 0: set .*data.label_column$"),
        (2, [-1, 0], "a row has label -1"),
    ],
)
def test_rows_that_the_classifier_cannot_use_are_told(views, labels, message):
    with pytest.raises(UserError, match=message) as error:
        attached()(torch.randn(2, views, 6), None if labels is None else torch.tensor(labels))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("labels", [1, 0, -3])
def test_one_class_is_none(labels):
    with pytest.raises(UserError, match=f"objective.labels={labels}: it must be at least 2"):
        SoftmaxObjective(labels)


@pytest.mark.parametrize(("name", "kind"), [("simcse", ContrastiveObjective), ("sbert", SoftmaxObjective)])
def test_the_configs_hold_the_defaults(name, kind):
    objective = instantiate(OmegaConf.load(ROOT / "conf" / "objective" / f"{name}.yaml"))
    settings = {key: value for key, value in vars(kind()).items() if not key.startswith("_")}
    assert type(objective) is kind
    assert {key: getattr(objective, key) for key in settings} == settings


def test_the_classifiers_gradient_is_the_mean_over_devices_of_equal_shares():
    objective = attached()
    embeddings, labels = torch.randn(6, 2, 6), torch.tensor([0, 2, 1, 1, 0, 2])
    (whole,) = torch.autograd.grad(objective(embeddings, labels), [objective.classifier.weight])
    shares = [
        torch.autograd.grad(objective(embeddings[part], labels[part]), [objective.classifier.weight])[0]
        for part in (slice(0, 3), slice(3, 6))
    ]
    torch.testing.assert_close(torch.stack(shares).mean(dim=0), whole)
