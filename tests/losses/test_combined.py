"""The names and curves of sums, and the sum of conf/objective."""

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from simcse_pl.losses.combined import SumOfLosses
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT


def test_the_names_in_a_sum_are_free_and_hide_no_curve():
    parts = {name: ContrastiveLoss() for name in ("type", "keys", "a.b")}
    parts["masked_negatives"] = ContrastiveLoss(false_negative_threshold=0.0)
    both, batch = SumOfLosses(parts), EmbeddedBatch.of(*torch.randn(3, 4, 6))
    both(None, batch)
    assert both.contrasts and set(batch.curves) == {*(f"objective/{name}" for name in parts), "masked_negatives"}
    assert batch.curves["objective/masked_negatives"] == parts["masked_negatives"](None, batch)
    with pytest.raises(UserError, match="^objectives is empty"):
        SumOfLosses({})


def test_the_config_of_a_sum_takes_any_objectives():
    parts = ["objective=sum", "+objective@objective.objectives.own=dcl", "+objective@objective.objectives.all=simcse"]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("train", [*parts, "+objective.objectives.own.weight=0.5"])
    assert [part.weight for part in instantiate(config.objective).parts()] == [0.5, 1.0]
