"""Optuna trials: proposed values, pruning by the median, and a study shared by the jobs of a sweep."""

import json
from types import SimpleNamespace

import optuna
import pandas
import pytest

from simcse_pl.lab.optuna_search import STUDY_FILE, OptunaTrial
from simcse_pl.utils.errors import SweepError

SPACE = {
    "optimizer": {"lr": {"low": 1e-5, "high": 1e-3, "log": True}},
    "model": {"dropout": {"choices": [0.0, 0.1]}, "num_layers": {"low": 1, "high": 3}},
}


def storage_of(folder):
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / STUDY_FILE)))


def study_of(folder, name="search"):
    return optuna.load_study(study_name=name, storage=storage_of(folder))


def validate(trial, step, score, fn="fit"):
    trainer = SimpleNamespace(
        state=SimpleNamespace(fn=fn),
        callback_metrics={"val/mrr": score},
        checkpoint_callback=SimpleNamespace(monitor="val/mrr"),
        global_step=step,
        should_stop=False,
        strategy=SimpleNamespace(broadcast=lambda decision: decision),
    )
    trial.callback.on_validation_end(trainer, None)
    return trainer.should_stop


def run(folder, number, *scores, **options):
    trial = OptunaTrial(folder, SPACE, number, **options)
    stopped = [validate(trial, step, score) for step, score in enumerate(scores, 1)]
    return trial, stopped, trial.tell(max(scores))


def test_values_are_nested_in_their_ranges_and_reproducible(tmp_path):
    values = {}
    for folder, seed in (("one", 3), ("two", 3), ("three", 4)):
        for trial in range(8):
            own, _, entry = run(tmp_path / folder, trial, 0.5 + 0.01 * trial, seed=seed)
            lr, model = own.values["optimizer"]["lr"], own.values["model"]
            assert 1e-5 <= lr <= 1e-3 and model["dropout"] in (0.0, 0.1) and model["num_layers"] in (1, 2, 3)
            flat = {"optimizer.lr": lr, "model.dropout": model["dropout"], "model.num_layers": model["num_layers"]}
            assert entry == {"values": flat, "pruned": False}
            values.setdefault(folder, []).append(flat)
    assert values["one"] == values["two"] != values["three"]
    study = study_of(tmp_path / "one")
    assert [trial.value for trial in study.trials] == pytest.approx([0.5 + 0.01 * trial for trial in range(8)])


def test_a_trial_below_the_median_at_its_step_is_pruned(tmp_path):
    for trial, level in enumerate((0.7, 0.6, 0.5)):
        assert run(tmp_path, trial, level, level + 0.1, startup=3)[1] == [False, False]  # random trials
    _, stopped, entry = run(tmp_path, 3, 0.65, 0.69, startup=3)  # the medians are 0.6 and 0.7
    assert stopped == [False, True] and entry["pruned"]
    assert study_of(tmp_path).trials[3].state == optuna.trial.TrialState.PRUNED
    _, stopped, _ = run(tmp_path, 4, 0.61, 0.72, startup=3)
    assert stopped == [False, False]
    before_training = OptunaTrial(tmp_path, SPACE, 5, startup=3)
    assert not validate(before_training, 1, 0.0, fn="validate") and not before_training.callback.pruned


def test_diverged_and_interrupted_trials_fail(tmp_path):
    assert not run(tmp_path, 0, float("nan"))[2]["pruned"]
    OptunaTrial(tmp_path, SPACE, 1)
    OptunaTrial(tmp_path, SPACE, 2)
    run(tmp_path, 1, 0.5)
    assert [trial.state.name for trial in study_of(tmp_path).trials] == ["FAIL", "FAIL", "RUNNING", "COMPLETE"]


def test_jobs_share_a_study_and_a_bad_trial_stops_early(train, short_run):
    space = ["search.startup=1", "search.trial=0,1", "search.space.model.dropout.choices=[0.0,0.9]"]
    done, folder = train(*["-m", "sweep=search", "size=mini", *space, *short_run, "trainer.max_steps=4", "val_every=1"])
    results = [json.loads((folder / str(job) / "results.json").read_text()) for job in range(2)]
    assert [study.n_trials for study in optuna.get_all_study_summaries(storage_of(folder))] == [2]
    for own in results:
        assert set(own["trial"]["values"]) == {"optimizer.lr", "objective.temperature", "model.dropout"}
        assert own["trial"]["pruned"] == (own["steps"] < 4)
    assert len({own["trial"]["values"]["optimizer.lr"] for own in results}) == 2
    curves = pandas.read_csv(folder / "1" / "metrics.csv")["train/lr"].dropna()
    assert curves.iloc[0] <= results[1]["trial"]["values"]["optimizer.lr"] < 1.4 * curves.iloc[0]
    assert "0 failed" not in done.stdout and not [line for line in done.stderr.splitlines() if "error" in line]


def test_a_rank_that_torchrun_started_has_no_trial(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("SIMCSE_PL_TRIAL", raising=False)
    with pytest.raises(SweepError, match=r"set trainer\.devices=1"):
        OptunaTrial(tmp_path, SPACE, 0)


def test_jobs_with_the_same_trial_keep_each_others(tmp_path):
    first = OptunaTrial(tmp_path, SPACE, 0, job="0")
    OptunaTrial(tmp_path, SPACE, 0, job="1")  # such as that of another seed
    again = OptunaTrial(tmp_path, SPACE, 0, job="1")  # after a kill
    other = OptunaTrial(tmp_path, SPACE, 0, study="model=roberta", job="2")
    first.tell(0.5)
    again.tell(0.6)
    other.tell(0.7)
    assert [trial.state.name for trial in study_of(tmp_path).trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert [trial.value for trial in study_of(tmp_path, "model=roberta").trials] == [0.7]
