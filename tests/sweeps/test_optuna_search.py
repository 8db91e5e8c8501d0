"""Searches: trials shared by a file, ranges that are kept, pruning as Optuna's median rule has it."""

import json
from types import SimpleNamespace

import optuna
import pandas
import pytest

from simcse_pl.sweeps.optuna_search import STUDY_FILE, OptunaTrial
from simcse_pl.utils.errors import UserError
from tests.conftest import tiny

SPACE = {
    "optimizer": {"lr": {"low": 1e-5, "high": 1e-3, "log": True}},
    "model": {"dropout": {"choices": [0.0, 0.1]}, "num_layers": {"low": 1, "high": 3}},
}


def study_of(folder):
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / STUDY_FILE)))
    return optuna.load_study(study_name="search", storage=storage)


def validate(search, step, score, fn="fit"):
    trainer = SimpleNamespace(
        state=SimpleNamespace(fn=fn),
        callback_metrics={"val/spearman": score},
        global_step=step,
        should_stop=False,
        strategy=SimpleNamespace(broadcast=lambda decision: decision),
    )
    search.callback.on_validation_end(trainer, None)
    return trainer.should_stop


def run(folder, trial, *scores, **options):
    search = OptunaTrial(folder, SPACE, trial, **options)
    stopped = [validate(search, step, score) for step, score in enumerate(scores, 1)]
    return search, stopped, search.tell(max(scores))


def test_values_are_nested_and_in_their_ranges(tmp_path):
    for trial in range(12):
        search, _, told = run(tmp_path, trial, 0.5 + 0.01 * trial)
        values = search.values
        assert 1e-5 <= values["optimizer"]["lr"] <= 1e-3
        assert values["model"]["dropout"] in (0.0, 0.1)
        assert values["model"]["num_layers"] in (1, 2, 3)
        flat = {
            "optimizer.lr": values["optimizer"]["lr"],
            "model.dropout": values["model"]["dropout"],
            "model.num_layers": values["model"]["num_layers"],
        }
        assert told == {"values": flat, "pruned": False}
    study = study_of(tmp_path)
    assert [trial.value for trial in study.trials] == pytest.approx([0.5 + 0.01 * trial for trial in range(12)])
    assert study.best_trial.number == 11


def test_the_same_seed_gives_the_same_trials(tmp_path):
    values = {
        folder: [run(tmp_path / folder, trial, 0.5, seed=seed)[0].values for trial in range(8)]
        for folder, seed in (("one", 3), ("two", 3), ("three", 4))
    }
    assert values["one"] == values["two"] != values["three"]


def test_a_trial_below_the_median_of_the_others_at_its_step_is_pruned(tmp_path):
    for trial, level in enumerate((0.5, 0.6, 0.7)):
        run(tmp_path, trial, level, level + 0.1, startup=3)
    _, stopped, told = run(tmp_path, 3, 0.65, 0.69, startup=3)  # the medians are 0.6 and 0.7
    assert stopped == [False, True] and told["pruned"]
    assert study_of(tmp_path).trials[3].state == optuna.trial.TrialState.PRUNED
    _, stopped, _ = run(tmp_path, 4, 0.61, 0.72, startup=3)
    assert stopped == [False, False]


def test_a_trial_that_came_apart_has_failed(tmp_path):
    _, _, told = run(tmp_path, 0, float("nan"))
    assert not told["pruned"]
    assert study_of(tmp_path).trials[0].state == optuna.trial.TrialState.FAIL


def test_none_of_the_first_trials_is_pruned(tmp_path):
    for trial, level in enumerate((0.9, 0.1, 0.1)):
        assert run(tmp_path, trial, level, startup=3)[1] == [False]


def test_the_validation_before_training_is_not_compared(tmp_path):
    for trial in range(3):
        run(tmp_path, trial, 0.5, startup=3)
    search = OptunaTrial(tmp_path, SPACE, 3, startup=3)
    assert not validate(search, 1, 0.0, fn="validate")
    assert not search.callback.pruned


def test_an_interrupted_job_gives_its_trial_up(tmp_path):
    OptunaTrial(tmp_path, SPACE, 0)
    OptunaTrial(tmp_path, SPACE, 1)
    run(tmp_path, 0, 0.5)
    states = [trial.state.name for trial in study_of(tmp_path).trials]
    assert states == ["FAIL", "RUNNING", "COMPLETE"]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"lr": 3}, "search.space.lr=3: give low and high, or choices"),
        ({"optimizer": {"lr": {"low": 2.0, "high": 1.0}}}, "search.space.optimizer.lr: .*low"),
        ({"lr": {"low": 0.0, "high": 1.0, "log": True}}, "search.space.lr: "),
        ({"lr": {"low": 1.0}}, "search.space.lr: 'high'"),
        ({"lr": {"choices": []}}, "search.space.lr: "),
    ],
)
def test_a_space_that_cannot_be_searched(tmp_path, space, message):
    with pytest.raises(UserError, match=message) as error:
        OptunaTrial(tmp_path, space)
    assert "\n" not in str(error.value)


def test_without_optuna_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(UserError, match="a search needs Optuna: pip install"):
        OptunaTrial(tmp_path, SPACE)


def test_a_search_shares_its_study_and_a_bad_trial_ends_early(train, sentences, make_model):
    space = ["search.startup=1", "search.trial=0,1,2", "search.space.model.dropout.choices=[0.0,0.9]"]
    done, folder = train(
        *["-m", "sweep=search", "size=mini", *space, "logger=csv", "data=text", f"data.train={sentences}"],
        *["trainer.max_steps=4", "val_every=1", *tiny(make_model("bert"))],
    )
    results = [json.loads((folder / str(job) / "results.json").read_text()) for job in range(3)]
    assert (folder / "study.journal").is_file()
    for own in results:
        assert set(own["trial"]["values"]) == {"optimizer.lr", "objective.temperature", "model.dropout"}
        assert own["trial"]["pruned"] == (own["steps"] < 4)
    assert len({own["trial"]["values"]["optimizer.lr"] for own in results}) == 3
    curves = pandas.read_csv(folder / "1" / "metrics.csv")["train/lr"].dropna()
    assert curves.iloc[0] <= results[1]["trial"]["values"]["optimizer.lr"] < 1.4 * curves.iloc[0]
    assert "0 failed" not in done.stdout and not [line for line in done.stderr.splitlines() if "error" in line]
