"""What a run warns of, and says at its end."""

import pytest

from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.fit import _warn_if_worse, run_settings
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from tests.conftest import adamw, linear, quiet_trainer


@pytest.mark.parametrize(("mode", "worse"), [("max", 0.7), ("min", 0.9)])
def test_a_run_warns_if_its_best_score_is_worse_than_before_training(mode, worse, caplog):
    for best in (1.6 - worse, 0.8, worse):
        assert not caplog.messages
        _warn_if_worse({"val/x": 0.8}, {"val/x": best}, "val/x", mode)
    assert caplog.messages[0].startswith(f"training has changed val/x from 0.8000 to {worse:.4f}: ")


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
