"""The objectives: their settings, and the logged similarities."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.bidirectional_margin import BidirectionalMargin
from simcse_pl.losses.contrasted_positives import ContrastedPositivesObjective
from simcse_pl.losses.dimension_contrast import DimensionContrast
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.losses.functional import contrastive_loss, near_negatives, siamese_softmax_loss
from simcse_pl.losses.objectives import ContrastiveObjective, DecoupledContrastiveObjective, SoftmaxObjective
from simcse_pl.losses.scored_pairs import AngleObjective, CoSENTObjective
from simcse_pl.losses.sum_of_objectives import SumOfObjectives
from simcse_pl.models.roles import Role, default_roles
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT, embedded
from tests.losses.loops import log_sum_exp, similarity
from tests.losses.networks import attached


@pytest.mark.parametrize(
    ("objective", "arguments"),
    [
        (DecoupledContrastiveObjective(), lambda *views: {"decoupled": True}),
        (ContrastiveObjective(hardness=0.7), lambda *views: {"hardness": 0.7}),
        (
            ContrastiveObjective(false_negative_threshold=0.5),
            lambda *views: {"negative_mask": near_negatives(*views, threshold=0.5)},
        ),
    ],
)
def test_options_are_arguments_of_the_contrastive_loss(objective, arguments):
    embeddings = torch.randn(6, 3, 4)
    views = embeddings[:, 0], embeddings[:, 1], embeddings[:, 2:]
    expected = contrastive_loss(*views, **arguments(*views))
    assert objective(embedded(embeddings)) == expected != contrastive_loss(*views)


POSITIVE, NEGATIVE, ANCHOR, OTHER = Role.POSITIVE, Role.NEGATIVE, Role.ANCHOR, Role.OTHER
NLI = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("loss", "roles", "labels"),
    [
        (BidirectionalMargin(), (ANCHOR, POSITIVE, OTHER), None),
        (ContrastedPositivesObjective(), default_roles(3), None),
        (DimensionContrast(), default_roles(2), None),
        (CoSENTObjective(), default_roles(2), NLI),
        (AngleObjective(), default_roles(2), NLI),
    ],
)
def test_half_precision_is_computed_in_float32(loss, roles, labels):
    def loss_of(rows):
        batch = EmbeddedBatch(rows, roles, {}, labels=labels)
        return loss(None, batch) if isinstance(loss, AuxiliaryLoss) else loss(batch)

    rows = torch.randn(5, len(roles), 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        half = loss_of(rows)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, loss_of(rows.float()))


@pytest.mark.parametrize(
    "roles",
    [(ANCHOR, POSITIVE, NEGATIVE), (ANCHOR, POSITIVE, POSITIVE), (POSITIVE, ANCHOR, POSITIVE, OTHER, NEGATIVE)],
)
@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize("threshold", [None, 0.3])
def test_several_positives_are_averaged_without_each_other_and_a_guide_masks_for_each(
    threshold, alpha, roles, monkeypatch
):
    embeddings, guided = (torch.randn(4, len(roles), 6, dtype=torch.float64) for _ in range(2))
    objective, calls = ContrastiveObjective(0.1, alpha, false_negative_threshold=threshold), []
    if threshold is not None:
        objective.guide = object.__new__(FrozenEncoder)
        monkeypatch.setattr(FrozenEncoder, "embed", lambda self, batch: calls.append(batch) or guided)
    loss = objective(EmbeddedBatch(embeddings, roles, {}))
    assert len(calls) == (threshold is not None), "the guide embeds a batch once"
    anchor, losses, x, of_guide = roles.index(ANCHOR), [], embeddings.tolist(), guided.tolist()
    for i, positive in itertools.product(range(4), (view for view, role in enumerate(roles) if role is POSITIVE)):
        scores, weights = [], []
        for j, (view, role) in itertools.product(range(4), enumerate(roles)):
            compared = role is NEGATIVE or (role is POSITIVE and (view == positive or j != i))
            near = threshold is not None and j != i and similarity(of_guide[i][anchor], of_guide[j][view]) > threshold
            if compared and not near:
                scores.append(similarity(x[i][anchor], x[j][view]) / 0.1)
                weights.append(alpha if role is NEGATIVE and j == i else 1.0)
        losses.append(log_sum_exp(scores, weights) - similarity(x[i][anchor], x[i][positive]) / 0.1)
    assert loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-9)


@pytest.mark.parametrize("objective", [ContrastiveObjective, DecoupledContrastiveObjective])
@pytest.mark.parametrize("left_out", [{}, {"mask_duplicates": True}, {"false_negative_threshold": 0.2}])
@pytest.mark.parametrize("roles", [(ANCHOR, POSITIVE), (NEGATIVE, POSITIVE, ANCHOR, POSITIVE)])
def test_the_symmetric_loss_also_compares_positives_with_anchors(roles, left_out, objective):
    x = torch.randn(5, len(roles), 4, dtype=torch.float64, requires_grad=True)
    queue = torch.randn(3, 4, dtype=torch.float64)
    unit = torch.nn.functional.normalize(x, dim=-1)
    ids = torch.arange(5 * len(roles)).view(5, -1, 1).repeat(1, 1, 3)
    ids[3, 1], ids[4, roles.index(ANCHOR)] = ids[0, 1], ids[1, 1]  # two positives; a positive and an anchor
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    anchors = unit[:, roles.index(ANCHOR)]
    backward = []
    for view in [view for view, role in enumerate(roles) if role is POSITIVE]:
        for i in range(5):
            logits = anchors @ unit[i, view] / 0.1
            keys = torch.cat([anchors, torch.nn.functional.normalize(queue, dim=-1)])
            others = [j for j in range(8) if j != i]
            if "mask_duplicates" in left_out:
                others = [j for j in others if {i, j} not in ({0, 3}, {1, 4})]
            if "false_negative_threshold" in left_out:
                others = [j for j in others if unit[i, view] @ keys[j] <= 0.2]
            terms = [keys[j] @ unit[i, view] / 0.1 for j in others]
            terms += [] if objective.decoupled else [logits[i]]
            backward.append(torch.stack(terms).logsumexp(0) - logits[i] if terms else 0 * logits[i])
    batch = EmbeddedBatch(x, roles, inputs, queue=queue)
    expected = (objective(0.1, 0.3, **left_out)(batch) + torch.stack(backward).mean()) / 2
    loss = objective(0.1, 0.3, **left_out, symmetric=True)(batch)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(one, x, retain_graph=True)[0] for one in (loss, expected)))


def test_a_sum_adds_objectives_with_their_weights():
    parts = {"cosine": ContrastiveObjective(), "dot": ContrastiveObjective(similarity="dot")}
    both = SumOfObjectives(parts, {"dot": 0.25})
    batch = embedded(torch.randn(4, 3, 6))
    torch.testing.assert_close(both(batch), parts["cosine"](batch) + 0.25 * parts["dot"](batch))
    assert both.contrasts and set(both.curves) == {"objective/cosine", "objective/dot"}


def test_the_names_in_a_sum_are_free_and_hide_no_curve():
    parts = {name: ContrastiveObjective() for name in ("type", "keys", "a.b")}
    parts["masked_negatives"] = ContrastiveObjective(false_negative_threshold=0.0)
    both, batch = SumOfObjectives(parts), embedded(torch.randn(4, 3, 6))
    both(batch)
    assert set(both.curves) == {*(f"objective/{name}" for name in parts), "masked_negatives"}
    assert both.curves["objective/masked_negatives"] == parts["masked_negatives"](batch)
    assert both.curves["masked_negatives"] == parts["masked_negatives"].curves["masked_negatives"]


def test_the_config_of_a_sum_takes_any_objectives():
    parts = ["objective=sum", "+objective@objective.objectives.own=dcl", "+objective@objective.objectives.all=simcse"]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", [*parts, "+objective.weights.own=0.5", "objective.objectives.own.temperature=0.1"])
    both = instantiate(config.objective)
    assert both.weights == {"own": 0.5, "all": 1.0} and both.objectives[0].temperature == 0.1


def test_the_classifier_takes_pairs_and_their_labels():
    objective = attached(SoftmaxObjective(4), SimpleNamespace(hidden_size=6))
    embeddings, labels = torch.randn(5, 2, 6), torch.tensor([3, 0, 1, 2, 3])
    expected = siamese_softmax_loss(embeddings[:, 0], embeddings[:, 1], labels, objective.classifier.weight)
    assert objective(embedded(embeddings, labels=labels)) == expected
    assert {name: tuple(w.shape) for name, w in objective.named_parameters()} == {"classifier.weight": (4, 18)}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 3], "^objective.labels=3: a row has label 3, and labels count from 0: set .*data.label_column$"),
        ([-1, 0], "a row has label -1"),
    ],
)
def test_rows_without_valid_labels_are_errors(labels, message):
    objective = attached(SoftmaxObjective(3), SimpleNamespace(hidden_size=6))
    with pytest.raises(UserError, match=message):
        objective(embedded(torch.randn(2, 2, 6), labels=torch.tensor(labels)))
