"""What a run warns of, and says at its end."""

import math

import pytest

from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.fit import _reasons_for_doubt, run_settings
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from tests.conftest import adamw, linear, quiet_trainer


@pytest.mark.parametrize(("mode", "worse"), [("max", 0.7), ("min", 0.9)])
def test_a_best_score_below_that_before_training_and_no_gradient_are_warnings(mode, worse):
    def warnings(best, norm=1.0):
        return [*_reasons_for_doubt(norm, {"val/x": 0.8}, {"val/x": best}, "val/x", mode)]

    assert warnings(1.6 - worse) == warnings(0.8) == warnings(0.8, norm=-1.0) == []
    (warning,) = warnings(worse)
    assert warning.startswith(f"training has changed val/x from 0.8000 to {worse:.4f}: ")
    (warning,) = warnings(0.8, norm=0.0)
    assert warning.startswith("all gradients were 0")
    (warning,) = warnings(math.nan)
    assert warning.startswith("val/x was NaN at every validation")


@pytest.mark.parametrize(("dev", "test", "names"), [(0.9, 0.6, ["test/x"]), (0.7, 0.6, ["val/x", "test/x"])])
def test_a_test_score_below_that_before_training_is_a_warning(dev, test, names):
    before, after = {"val/x": 0.8, "test/x": 0.65}, {"val/x": dev, "test/x": test}
    (warning,) = _reasons_for_doubt(1.0, before, after, "val/x", "max")
    changes = [f"{name} from {before[name]:.4f} to {after[name]:.4f}" for name in names]
    assert warning.startswith(f"training has changed {' and '.join(changes)}: the saved encoder scores worse")
    assert not [*_reasons_for_doubt(1.0, before, {"val/x": 0.9}, "val/x", "max")]


@pytest.mark.parametrize(
    ("lr", "warmup", "warnings"),
    [
        (1e-30, 4, []),
        (0.0, 4, ["optimizer.lr=0: no weight will change"]),
        (0.1, 5, ["scheduler.num_warmup_steps=5: the rate still rises in the last of 5 steps"]),
    ],
)
def test_values_that_train_nothing_or_have_no_effect_are_warned_of(lr, warmup, warnings, make_model, caplog):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean")
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(lr), linear(warmup) if warmup else None)
    run_settings(quiet_trainer(max_steps=5), module, SentenceDataModule(encoder.tokenizer, "unused"), {})
    assert [record.message for record in caplog.records if record.name == "simcse_pl.fit"] == warnings
