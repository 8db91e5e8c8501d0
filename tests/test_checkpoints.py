"""Runs that are killed and resumed have the weights, curves and scores of an uninterrupted run."""

import json

import pandas
import pytest
import torch

from simcse_pl.checkpoints import LAST_CHECKPOINT, Start, find_start, prepare_folder
from simcse_pl.run_folder import WANDB_FILE
from simcse_pl.run_metadata import RunMetadata
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import locked
from tests.conftest import SENTENCES, environment, tiny
from tests.support.helpers import assert_same_run, everything_of
from tests.support.offline_wandb import offline_runs

STEPS = 12  # 4 epochs of 3 batches


@pytest.fixture
def forked(tmp_path, make_model, pairs, forks_of_session):
    """Run train.py several times, with dropout, a view, a queue, MLM and epochs that end within a batch."""
    (tmp_path / "sentences.txt").write_text("\n".join(SENTENCES))
    given = ["data=text", f"data.train={tmp_path}/sentences.txt", "views=word_deletion", *tiny(make_model("bert"))]
    given += ["queue=momentum", "queue.size=5", "auxiliary=[mlm]", "auxiliary.mlm.head=new", "logger=csv"]
    given += ["data.batch_size=3", "val_every=2", "log_every=1", "trainer.max_epochs=4", "module.chunk_size=2"]
    given += [f"data.validation={pairs}", f"data.test={pairs}", "trainer=cpu"]

    def run(*runs):
        ended = []
        for folder, options, fault in runs:
            arguments = ["train.py", *given, *options, f"hydra.run.dir={tmp_path}/{folder}"]
            done = forks_of_session.run(*arguments, environment=environment(WANDB_MODE="offline"), fault=fault)
            ended.append((done.returncode, done.stderr))
        return ended

    return run


def test_a_killed_or_terminated_run_is_resumed_to_the_bit(forked, tmp_path):
    """Terminate right after a validation, and in the next step; kill while a checkpoint is written."""
    faults = [["terminate_in_step", 2], ["terminate_in_step", 1], ["kill_while_saving", 2], None]
    runs = [("whole", [], None), *(("resumed", ["resume=auto"], fault) for fault in faults)]
    expected = {"terminate_in_step": 143, "kill_while_saving": -9}
    for (_, _, fault), (status, errors) in zip(runs, forked(*runs), strict=True):
        assert status == (expected[fault[0]] if fault else 0), (fault, errors)
        assert (status == 143) == ("stopped after step " in errors)
    whole = everything_of(tmp_path / "whole")
    assert whole[1]["steps"] == STEPS and whole[0]["train/loss"].count() == STEPS
    assert_same_run(tmp_path / "resumed", whole)


@pytest.mark.slow
def test_a_resumed_run_continues_its_wandb_run(forked, tmp_path):
    """Kill after a checkpoint, terminate, and finish; resume in another folder too."""
    first, other = ["resume=auto", "logger=wandb"], ["logger=wandb", f"resume={tmp_path}/run/checkpoints/last.ckpt"]
    kills = [["kill_in_step", 6], ["terminate_in_step", 3], None]
    forked(*[("run", first, kill) for kill in kills], ("other", other, None))
    killed, terminated, last = offline_runs(tmp_path / "run", killed=1)
    (apart,) = offline_runs(tmp_path / "other")
    assert killed.started.run_id == terminated.started.run_id == last.started.run_id != apart.started.run_id
    assert [(run.exit, run.preempting) for run in (killed, terminated, last)] == [(None, False), (1, True), (0, False)]
    curves = pandas.read_csv(tmp_path / "run" / "metrics.csv")
    for name in ("train/loss", "val/spearman"):
        expected = curves.loc[curves["step"] > 4, ["step", name]].dropna()  # where the checkpoint was written
        points = [[row["trainer/global_step"], row[name]] for row in terminated.history + last.history if name in row]
        assert points == expected.to_numpy().tolist(), name
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    best = killed.summary | terminated.summary | last.summary  # as W&B merges them
    assert best["val/spearman"] == results["best"]["spearman"] and best["best_step"] == results["best_step"]


def test_a_run_can_be_resumed_in_another_folder_and_a_finished_one_has_no_steps_left(forked, tmp_path):
    checkpoint = tmp_path / "first" / "checkpoints" / "last.ckpt"
    shorter, resumed = ["trainer.max_epochs=2"], [f"resume={checkpoint}"]
    options = {
        "first": shorter,
        "second": resumed,
        "apart": shorter + resumed,
        "less": ["trainer.max_epochs=1", *resumed],
    }
    first, second, apart, less = forked(*((name, options[name], None) for name in options))
    assert (first[0], second[0], apart[0], less[0]) == (0, 0, 2, 2)
    assert f"error: the checkpoint has {STEPS // 2} steps, and this run {STEPS // 4}: increase trainer.max_" in less[1]
    assert apart[1].endswith("error: no steps to train: increase trainer.max_epochs or trainer.max_steps\n")
    curves = pandas.read_csv(tmp_path / "second" / "metrics.csv")
    assert curves["train/loss"].count() == STEPS // 2 and curves["step"].min() == STEPS // 2 + 1
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("first", "second")]
    assert results[0]["before"] == results[1]["before"] and results[1]["steps"] == STEPS


def write_run(folder, steps=4):
    record = RunMetadata()
    record.before = {"val/spearman": 0.5}
    (folder / "checkpoints").mkdir(parents=True)
    content = {"global_step": steps, "callbacks": {record.state_key: record.state_dict()}}
    torch.save(content, folder / "checkpoints" / "last.ckpt")
    (folder / "metrics.csv").write_text("step,train/loss\n1,0.5\n4,0.25\n5,0.125\n7,0.1\n")


def test_a_job_of_a_sweep_continues_its_folder_and_the_log_says_why(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("simcse_pl.checkpoints.in_sweep", lambda: True)
    write_run(tmp_path)
    (tmp_path / WANDB_FILE).write_text("{}")
    with caplog.at_level("INFO"):
        start = find_start(None, tmp_path)
    checkpoint = tmp_path / "checkpoints" / "last.ckpt"
    assert start == Start(checkpoint, step=4, continues=True)
    why = "this is a job of a sweep, where resume=auto is the default"
    assert caplog.messages == [f"resuming from step 4, because {why}: {checkpoint}"]
    prepare_folder(tmp_path, start)
    assert (tmp_path / "metrics.csv").read_text() == "step,train/loss\n1,0.5\n4,0.25\n"
    assert checkpoint.exists() and (tmp_path / WANDB_FILE).exists(), "the run of W&B continues too"


@pytest.mark.parametrize("finished", [False, True])
def test_a_folder_with_anything_of_a_run_is_not_used_again(tmp_path, finished):
    write_run(tmp_path)
    if finished:
        (tmp_path / "results.json").touch()
    curves = (tmp_path / "metrics.csv").read_bytes()
    with pytest.raises(UserError, match="already holds a run"):
        find_start(f"{tmp_path}/checkpoints/last.ckpt" if finished else None, tmp_path)
    assert (tmp_path / "metrics.csv").read_bytes() == curves


def test_a_folder_is_locked_by_one_run(tmp_path):
    with locked(tmp_path), pytest.raises(UserError, match="another command is writing to it"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize("search", [False, True])
def test_without_a_checkpoint_and_in_a_search_a_run_starts_anew(tmp_path, search):
    assert find_start("auto", tmp_path, search) == Start()
    if search:
        write_run(tmp_path)
    (tmp_path / "metrics.csv").write_text("step,train/loss\n0,0.5\n")
    (tmp_path / WANDB_FILE).write_text("{}")
    prepare_folder(tmp_path, find_start("auto", tmp_path, search), search)
    assert (tmp_path / "metrics.csv").read_text() == "step,train/loss\n" and not (tmp_path / WANDB_FILE).exists()
    assert not (tmp_path / LAST_CHECKPOINT).exists(), "Lightning would give the new one another name"


@pytest.mark.parametrize(
    "content",
    [
        b"PK half",
        {"state_dict": {}},
        {"global_step": torch.ones(2), "callbacks": {"run": {"before": {"val/spearman": 0.5}, "trained_with": {}}}},
    ],
)
def test_a_file_that_is_no_checkpoint_is_an_error(tmp_path, content):
    path = tmp_path / "checkpoints" / "last.ckpt"
    path.parent.mkdir()
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(UserError, match="last.ckpt is no(t a)? checkpoint"):
        find_start("auto", tmp_path)
