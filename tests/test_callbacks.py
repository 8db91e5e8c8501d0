"""BestValidation against a made-up run."""

from types import SimpleNamespace

import torch

from simcse_pl.callbacks import BestValidation, Speed


def validated(step, spearman, stage="fit"):
    metrics = {"val/spearman": torch.tensor(spearman), "val/alignment": torch.tensor(spearman / 2), "train/loss": 1.0}
    return SimpleNamespace(state=SimpleNamespace(fn=stage), global_step=step, callback_metrics=metrics)


def test_remembers_the_best_validation_of_training():
    best = BestValidation()
    for step, spearman, stage in (
        (0, 0.9, "validate"),
        (1, 0.25, "fit"),
        (2, 0.5, "fit"),
        (3, 0.5, "fit"),
        (4, 0.125, "fit"),
    ):
        best.on_validation_end(validated(step, spearman, stage), None)
    assert best.step == 2
    assert best.metrics == {"val/spearman": 0.5, "val/alignment": 0.25}


def test_goes_on_from_a_checkpoint():
    best, resumed = BestValidation(), BestValidation()
    best.on_validation_end(validated(2, 0.5), None)
    resumed.load_state_dict(best.state_dict())
    resumed.on_validation_end(validated(3, 0.25), None)
    assert (resumed.step, resumed.metrics["val/spearman"]) == (2, 0.5)


def test_speed_counts_all_views_and_leaves_validation_out(monkeypatch):
    clock = iter([0.0, 2.0, 100.0, 101.0])
    monkeypatch.setattr("simcse_pl.callbacks.time.perf_counter", lambda: next(clock))
    logged = []
    module = SimpleNamespace(log=lambda name, value: logged.append(value))
    batch = {"input_ids": torch.zeros(4, 3, 7)}
    speed = Speed()
    speed.on_train_start(None, module)
    speed.on_train_batch_end(None, module, None, batch, 0)
    speed.on_validation_end(None, module)
    speed.on_train_batch_end(None, module, None, batch, 1)
    assert logged == [6.0, 12.0]
