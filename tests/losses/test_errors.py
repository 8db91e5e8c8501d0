"""Values and rows that the losses reject. tests/bad_input has more of them, as commands."""

import math

import pytest

from simcse_pl.losses.contrasted_positives import ContrastedPositivesObjective
from simcse_pl.losses.debiased import DebiasedObjective
from simcse_pl.losses.dimension_contrast import DimensionContrast
from simcse_pl.losses.distillation import EmbeddingDistillation, MarginMSE
from simcse_pl.losses.margins import AngularMarginObjective
from simcse_pl.losses.matryoshka import MatryoshkaObjective
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.losses.negatives import GaussianNegatives, NegativesWithoutDropout
from simcse_pl.losses.objectives import ContrastiveObjective, SoftmaxObjective
from simcse_pl.losses.peer_network import PeerNetwork
from simcse_pl.losses.ranking import RankingConsistency, RankingDistillation
from simcse_pl.losses.regularizers import SpectrumControl
from simcse_pl.losses.scored_pairs import AngleObjective, CoSENTObjective, CosineMSEObjective
from simcse_pl.losses.sum_of_objectives import SumOfObjectives
from simcse_pl.losses.whitened import WhitenedContrastiveObjective
from simcse_pl.models.roles import Role
from simcse_pl.utils.errors import UserError

PART = ContrastiveObjective()
NEEDED = {
    DebiasedObjective: {"guide": "guide"},
    MatryoshkaObjective: {"objective": PART},
    RankingDistillation: {"teachers": ["a"]},
    SumOfObjectives: {"objectives": {"a": PART}},
}


@pytest.mark.parametrize(
    ("loss", "option", "value", "message"),
    [
        (AngularMarginObjective, "margin", math.nan, "^objective.margin=nan: it must be 0 to 180 degrees$"),
        (ContrastiveObjective, "similarity", "euclid", "^objective.similarity=euclid: choose one of cosine, dot$"),
        (ContrastiveObjective, "guide", "x", "^objective.guide=x: it needs objective.false_negative_threshold$"),
        (DebiasedObjective, "threshold", 1.5, "^objective.threshold=1.5: it must be -1 to 1$"),
        (DebiasedObjective, "noise_ratio", -1.0, "^objective.noise_ratio=-1.0: it must be 0 or more"),
        (DebiasedObjective, "noise_steps", -1, "^objective.noise_steps=-1: it must be 0 or more"),
        (DebiasedObjective, "noise_step_size", math.inf, "^objective.noise_step_size=inf: it must be 0 or more"),
        (GaussianNegatives, "size", 0, "^objective.size=0: it must be at least 1$"),
        (GaussianNegatives, "std", 0.0, "^objective.std=0.0: it must be above 0, and finite$"),
        (MatryoshkaObjective, "dims", [4, 0], r"^objective.dims=\[4, 0\]: give different numbers, each 1 or more$"),
        (MatryoshkaObjective, "weights", [1.0, -1.0], "^objective.weights=-1.0: it must be 0 or more"),
        (MomentumQueue, "size", 0, "^queue.size=0: it must be at least 1$"),
        (MomentumQueue, "momentum", 1.0, "^queue.momentum=1.0: it must be 0 or more, and below 1$"),
        (MomentumQueue, "momentum", -1, "^queue.momentum=-1: it must be 0 or more, and below 1$"),
        (RankingDistillation, "teachers", [], "^auxiliary.ranking_distillation.teachers: give one or two, not 0$"),
        (RankingDistillation, "teachers", "abc", "^auxiliary.ranking_distillation.teachers: give one or two, not 3$"),
        (RankingDistillation, "alpha", 1.5, "^auxiliary.ranking_distillation.alpha=1.5: it must be 0 to 1$"),
        (RankingDistillation, "alpha", math.nan, "^auxiliary.ranking_distillation.alpha=nan: it must be 0 to 1$"),
        (SoftmaxObjective, "labels", 1, "^objective.labels=1: it must be at least 2$"),
        (SpectrumControl, "decay", "linear", "decay=linear: choose one of polynomial, exponential"),
        (SpectrumControl, "exponent", -0.1, "^auxiliary.spectrum_control.exponent=-0.1: it must be 0 or more"),
        (SpectrumControl, "rate", math.nan, "^auxiliary.spectrum_control.rate=nan"),
        (SumOfObjectives, "objectives", {}, "^objective.objectives is empty"),
        (SumOfObjectives, "weights", {"b": 1.0}, "^objective.weights.b: choose one of a$"),
        (SumOfObjectives, "weights", {"a": -1.0}, "^objective.weights.a=-1.0: it must be 0 or more"),
        (WhitenedContrastiveObjective, "groups", 0, "^objective.groups=0: it must be above 0, and finite$"),
    ],
)
def test_values_out_of_range(loss, option, value, message):
    with pytest.raises(UserError, match=message):
        loss(**NEEDED.get(loss, {}) | {option: value})


ANCHOR, POSITIVE, NEGATIVE, OTHER = Role
PAIR, TRIPLET = (ANCHOR, POSITIVE), (ANCHOR, POSITIVE, NEGATIVE)
TWO_POSITIVES = (ANCHOR, POSITIVE, POSITIVE)
OF_POSITIVES = ContrastiveObjective, DimensionContrast, PeerNetwork, RankingConsistency
CHOICES = {"cosine_mse": CosineMSEObjective, "cosent": CoSENTObjective, "angle": AngleObjective}
NO_LABELS = "^objective=contrasted_positives takes no labels: set data."
ONE_POSITIVE = r"^data.roles=\[.*\]: .* a row needs one positive, and no negative$"
PAIRS_ONLY = "^objective=debiased takes one anchor and one positive, without labels: set views=dropout$"
POSITIVES_ONLY = "^objective=whitened takes an anchor and positives, without negatives and labels$"


@pytest.mark.parametrize(
    ("loss", "roles", "labels", "message"),
    [
        *(
            (one, (POSITIVE, NEGATIVE), None, r"^data.roles=\['positive', 'n.*needs one anchor, not 0$")
            for one in OF_POSITIVES
        ),
        *((one, (ANCHOR, *PAIR), None, "a row needs one anchor, not 2$") for one in OF_POSITIVES),
        *((one, (ANCHOR, OTHER), None, "needs a positive: name one in data.roles, or set") for one in OF_POSITIVES),
        (ContrastedPositivesObjective, (*TWO_POSITIVES, NEGATIVE), None, "but rows have 2 and 1$"),
        (ContrastedPositivesObjective, TRIPLET, "classes", f"{NO_LABELS}label_column=null$"),
        (ContrastedPositivesObjective, TRIPLET, "scores", f"{NO_LABELS}score_column=null$"),
        (ContrastiveObjective, PAIR, "scores", "takes no labels: set data.score_column=null, or objective=cosine_mse$"),
        *((DebiasedObjective, roles, None, PAIRS_ONLY) for roles in (TWO_POSITIVES, TRIPLET, (ANCHOR, OTHER))),
        (DebiasedObjective, PAIR, "scores", PAIRS_ONLY),
        (EmbeddingDistillation, PAIR, "scores", "^objective=distillation takes no labels"),
        (MarginMSE, TRIPLET, "classes", "^objective=margin_mse takes no labels"),
        (MarginMSE, TRIPLET[1:], None, "a row needs one anchor, not 0$"),
        (NegativesWithoutDropout, TWO_POSITIVES, None, ONE_POSITIVE),
        (WhitenedContrastiveObjective, TRIPLET, None, POSITIVES_ONLY),
        (WhitenedContrastiveObjective, (ANCHOR, NEGATIVE), None, POSITIVES_ONLY),
        (WhitenedContrastiveObjective, PAIR, "scores", POSITIVES_ONLY),
        *((own, PAIR, "classes", f"^objective={name} needs a score for every") for name, own in CHOICES.items()),
    ],
)
def test_rows_that_a_loss_is_not_defined_for(loss, roles, labels, message):
    with pytest.raises(UserError, match=message):
        loss.__new__(loss).check_rows(roles, labels)
