"""What a run refuses to begin, and what it says at its end."""

import pytest
from pytorch_lightning.callbacks import (
    BackboneFinetuning,
    BatchSizeFinder,
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    StochasticWeightAveraging,
    Timer,
)

from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.fit import _warn_if_worse, check_trainer, run_settings
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.train_job import build_trainer
from simcse_pl.utils.errors import UserError
from tests.conftest import adamw, linear, quiet_trainer
from tests.helpers import composed


@pytest.mark.parametrize(("mode", "worse"), [("max", 0.7), ("min", 0.9)])
def test_a_run_warns_if_its_best_score_is_worse_than_before_training(mode, worse, caplog):
    for best in (1.6 - worse, 0.8, worse):
        assert not caplog.messages
        _warn_if_worse({"val/x": 0.8}, {"val/x": best}, "val/x", mode)
    assert caplog.messages[0].startswith(f"training has changed val/x from 0.8000 to {worse:.4f}: ")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"callbacks": EMAWeightAveraging()}, "WeightAveraging: its weights would not be saved"),
        ({"callbacks": StochasticWeightAveraging(1e-3)}, "StochasticWeightAveraging: its weights would not be saved"),
        ({"callbacks": ModelPruning("l1_unstructured")}, "ModelPruning: its weights would not be saved"),
        ({"callbacks": GradientAccumulationScheduler({0: 2})}, "GradientAccumulationScheduler: it adds no"),
        ({"callbacks": LearningRateFinder()}, "LearningRateFinder: it cannot set"),
        ({"callbacks": BatchSizeFinder()}, "BatchSizeFinder: it cannot set"),
        ({"callbacks": BackboneFinetuning()}, "BackboneFinetuning: set module.freeze_layers"),
        ({"accumulate_grad_batches": 2}, "trainer.accumulate_grad_batches: it adds no negatives"),
        ({"fast_dev_run": True}, "trainer.fast_dev_run: it saves no encoder"),
        ({"overfit_batches": 1}, "trainer.overfit_batches: set experiment=overfit"),
        ({"limit_train_batches": 2}, "trainer.limit_train_batches: set data.limit"),
        ({"max_epochs": -1, "max_time": {"seconds": 1}}, "trainer.max_epochs=-1: the schedule needs a last step"),
        ({}, "callbacks: the first checkpoint must be a BestCheckpoint"),
    ],
)
def test_what_of_lightning_does_not_work_is_refused(options, line):
    with pytest.raises(UserError, match=f"^{line}"):
        check_trainer(quiet_trainer(**{"max_epochs": 1} | options))


@pytest.mark.parametrize(
    "option",
    [
        "+trainer.max_time={seconds: 7}",
        "+callbacks.timer={_target_: pytorch_lightning.callbacks.Timer, duration: {seconds: 7}}",
    ],
)
def test_a_duration_is_read_from_a_config(option):
    trainer = build_trainer(composed("trainer=cpu", option), [])
    assert [callback._duration for callback in trainer.callbacks if isinstance(callback, Timer)] == [7]


@pytest.mark.parametrize(
    ("lr", "warmup", "dim", "warnings"),
    [
        (1e-30, 4, 32, []),
        (0.0, 4, None, ["optimizer.lr=0: no weight will change"]),
        (0.1, 5, None, ["scheduler.num_warmup_steps=5: the rate still rises in the last of 5 steps"]),
        (0.1, 0, 33, ["model.truncate_dim=33: nothing is cut off from vectors of 32 dimensions"]),
    ],
)
def test_values_that_train_nothing_or_have_no_effect_are_warned_of(lr, warmup, dim, warnings, make_model, caplog):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean", truncate_dim=dim)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(lr), linear(warmup) if warmup else None)
    run_settings(quiet_trainer(max_steps=5), module, SentenceDataModule(encoder.tokenizer, "unused"), {})
    assert [record.message for record in caplog.records if record.name == "simcse_pl.fit"] == warnings
