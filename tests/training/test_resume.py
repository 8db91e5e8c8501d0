"""Runs that are killed and go on: their weights, curves and scores are those of a run that was never stopped."""

import json
import random

import pandas
import pytest
import torch

from simcse_pl.results.run_files import WANDB_FILE
from simcse_pl.sweeps.jobs import given_options
from simcse_pl.tracking.wandb_logger import PLANE
from simcse_pl.training.resume import RunMetadata, find_checkpoint, forget_checkpoint
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, environment, tiny
from tests.offline_wandb import offline_runs

STEPS = 12  # 4 epochs of 3 batches


def everything_of(folder):
    """All that a run leaves but its times and places."""
    curves = pandas.read_csv(folder / "metrics.csv").drop(
        columns=["speed/sentences_per_second", "speed/waiting_for_data"]
    )
    results = json.loads((folder / "results.json").read_text()) | {"overrides": None}
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    state = {"weights": checkpoint["state_dict"], "optimizer": checkpoint["optimizer_states"][0]["state"]}
    return curves, results, state, (folder / "encoder" / "model.safetensors").read_bytes()


def assert_same(folder, whole):
    curves, results, state, encoder = everything_of(folder)
    pandas.testing.assert_frame_equal(curves, whole[0], check_exact=True)
    assert results == whole[1]
    torch.testing.assert_close(state, whole[2], atol=0, rtol=0)
    assert encoder == whole[3]


@pytest.fixture
def forked(tmp_path, make_model, forks_of_session):
    """Run train.py several times, each with dropout, a view, a queue, MLM and batches that go over epochs."""
    (tmp_path / "sentences.txt").write_text("\n".join(SENTENCES))
    given = ["data=text", f"data.train={tmp_path}/sentences.txt", "views=word_deletion", *tiny(make_model("bert"))]
    given += ["queue=momentum", "queue.size=5", "auxiliary=[mlm]", "auxiliary.mlm.head=new", "logger=csv"]
    given += ["data.batch_size=3", "val_every=2", "log_every=1", "trainer.max_epochs=4", "chunk_size=2"]
    given += [
        "data.validation=[sample]",
        "trainer=cpu",
        "+trainer.limit_val_batches=1",
        "+trainer.limit_test_batches=1",
    ]

    def run(*runs):
        ended = []
        for folder, options, kill in runs:
            arguments = ["train.py", *given, *options, f"hydra.run.dir={tmp_path}/{folder}"]
            done = forks_of_session.run(*arguments, environment=environment(WANDB_MODE="offline"), kill=kill)
            ended.append((done.returncode, done.stderr))
        return ended

    return run


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 10), marks=pytest.mark.by_hand)])
def test_killed_at_any_moment_it_ends_as_if_it_had_not_been(forked, tmp_path, seeds):
    """Each seed killed at a random step, some once more while a checkpoint is written."""
    runs = [("whole", [], None)]
    for seed in seeds:
        chance = random.Random(seed)
        kills = [["training_step", chance.randint(1, STEPS)], ["saved", chance.randint(1, 2)]]
        kills = kills if seed < 3 else kills[:1]
        runs += [(f"killed{seed}", ["resume=auto"], kill) for kill in (*kills, None)]
    statuses = forked(*runs)
    for (folder, _, kill), (status, errors) in zip(runs, statuses, strict=True):
        assert status in ((0, -9) if kill else (0,)), (folder, kill, errors)
    assert sum(status == -9 for status, _ in statuses) >= len(seeds)
    whole = everything_of(tmp_path / "whole")
    assert whole[1]["steps"] == STEPS and whole[0]["train/loss"].count() == STEPS
    for seed in seeds:
        assert_same(tmp_path / f"killed{seed}", whole)


def test_told_to_stop_it_ends_as_if_it_had_not_been(forked, tmp_path):
    """Twice in the middle, and after a validation that comes before an epoch's last batch."""
    twice = [("told", ["resume=auto"], kill) for kill in (["told", 5], ["told", 1], None)]
    validated = [("validated", ["resume=auto"], kill) for kill in (["told", 2], None)]
    statuses = forked(("whole", [], None), *twice, *validated)
    assert [status for status, _ in statuses] == [0, 143, 143, 0, 143, 0], statuses
    assert sum("stopped after step " in errors for _, errors in statuses) == 3
    for folder in ("told", "validated"):
        assert_same(tmp_path / folder, everything_of(tmp_path / "whole"))


@pytest.mark.slow
def test_in_wandb_it_goes_on_in_the_same_run(forked, tmp_path):
    """Killed after a checkpoint, told to stop, and then left alone; and once more in another folder."""
    first, other = ["resume=auto", "logger=wandb"], ["logger=wandb", f"resume={tmp_path}/run/checkpoints/last.ckpt"]
    kills = [["training_step", 6], ["told", 3], None]
    forked(*[("run", first, kill) for kill in kills], ("other", other, None))
    killed, told, last = offline_runs(tmp_path / "run", killed=1)
    (apart,) = offline_runs(tmp_path / "other")
    assert killed.started.run_id == told.started.run_id == last.started.run_id != apart.started.run_id
    assert [(run.exit, run.preempting) for run in (killed, told, last)] == [(None, False), (1, True), (0, False)]
    curves = pandas.read_csv(tmp_path / "run" / "metrics.csv")
    for name in ("train/loss", "val/spearman"):
        expected = curves.loc[curves["step"] > 4, ["step", name]].dropna()  # where the checkpoint was written
        points = [[row["trainer/global_step"], row[name]] for row in told.history + last.history if name in row]
        assert points == expected.to_numpy().tolist(), name
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    best = killed.summary | told.summary | last.summary  # as W&B puts them together
    assert best["val/spearman"] == results["best"]["spearman"] and best["best_step"] == results["best_step"]
    assert len(last.table(f"Custom Chart Tables/{PLANE}_table")["data"]) == curves["val/spearman"].count()


def test_what_has_ended_is_not_run_again_and_what_differs_is_told(forked, tmp_path):
    (first, again, other, without) = forked(
        ("run", ["trainer.max_epochs=1"], None),
        ("run", ["trainer.max_epochs=1", "resume=auto"], ["training_step", 1]),
        ("run", ["trainer.max_epochs=1", "resume=auto", "seed=7"], None),
        ("run", ["trainer.max_epochs=1"], None),
    )
    assert first[0] == 0 and again[0] == 0
    assert other[0] == 2 and "holds another job" in other[1]
    assert without[0] == 2 and "or go on with it by resume=auto" in without[1]


def test_a_checkpoint_may_be_gone_on_from_in_another_folder(forked, tmp_path):
    checkpoint = tmp_path / "first" / "checkpoints" / "last.ckpt"
    statuses = forked(
        ("first", ["trainer.max_epochs=2"], None),
        ("second", [f"resume={checkpoint}"], None),
        ("first", [f"resume={checkpoint}"], None),
        ("third", [f"resume={checkpoint}"], None),  # which is at the end now
    )
    assert [status for status, _ in statuses] == [0, 0, 0, 2], statuses
    assert statuses[-1][1].endswith("error: trainer.max_epochs and trainer.max_steps leave no step to train\n")
    curves = pandas.read_csv(tmp_path / "second" / "metrics.csv")
    assert curves["train/loss"].count() == STEPS // 2 and curves["step"].min() == STEPS // 2 + 1
    assert pandas.read_csv(tmp_path / "first" / "metrics.csv")["train/loss"].count() == STEPS
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("first", "second")]
    assert results[0]["before"] == results[1]["before"] and results[0]["steps"] == results[1]["steps"] == STEPS


def write_run(folder, options=(), steps=4):
    record = RunMetadata(options)
    record.before = {"val/spearman": 0.5}
    (folder / "checkpoints").mkdir(parents=True)
    content = {"global_step": steps, "callbacks": {record.state_key: record.state_dict()}}
    torch.save(content, folder / "checkpoints" / "last.ckpt")
    (folder / "metrics.csv").write_text("step,train/loss\n1,0.5\n4,0.25\n5,0.125\n7,0.1\n")


def test_curves_are_cut_where_the_checkpoint_was_written(tmp_path):
    write_run(tmp_path, ["seed=1", "resume=auto"])
    checkpoint = find_checkpoint("auto", tmp_path, ["resume=auto", "seed=1"])
    assert checkpoint == tmp_path / "checkpoints" / "last.ckpt"
    assert (tmp_path / "metrics.csv").read_text() == "step,train/loss\n1,0.5\n4,0.25\n"


@pytest.mark.parametrize(("resume", "stays"), [("auto", True), ("last", True), ("other", False)])
def test_only_what_goes_on_from_its_own_checkpoint_stays_in_its_wandb_run(tmp_path, resume, stays):
    write_run(tmp_path / "run")
    write_run(tmp_path / "other")
    (tmp_path / "run" / WANDB_FILE).write_text("{}")
    paths = {name: str(tmp_path / name / "checkpoints" / "last.ckpt") for name in ("run", "other")}
    if resume == "other":
        (tmp_path / "run" / "metrics.csv").unlink()
    find_checkpoint({"auto": "auto", "last": paths["run"]}.get(resume, paths["other"]), tmp_path / "run", [])
    assert (tmp_path / "run" / WANDB_FILE).exists() == stays


def test_nothing_to_go_on_from_is_a_run_from_the_start(tmp_path):
    assert find_checkpoint("auto", tmp_path, []) is None
    (tmp_path / "metrics.csv").write_text("step,train/loss\n0,0.5\n")
    assert find_checkpoint("auto", tmp_path, []) is None
    assert (tmp_path / "metrics.csv").read_text() == "step,train/loss\n"
    (tmp_path / WANDB_FILE).write_text("{}")
    assert find_checkpoint("auto", tmp_path, []) is None and not (tmp_path / WANDB_FILE).exists()


def test_a_trial_that_was_given_up_begins_anew(tmp_path):
    write_run(tmp_path)
    forget_checkpoint(tmp_path)
    assert find_checkpoint("auto", tmp_path, []) is None
    forget_checkpoint(tmp_path)  # there may be none


@pytest.mark.parametrize(
    ("resume", "options", "message"),
    [
        ("auto", ["seed=2"], "holds another run \\(seed=1\\): choose another folder, or go on with it under these"),
        (None, ["seed=1"], "holds a run already, whose curves would be lost"),
        ("nowhere.ckpt", [], "resume: no file nowhere.ckpt"),
    ],
)
def test_what_cannot_be_gone_on_with_is_told(tmp_path, resume, options, message):
    write_run(tmp_path, ["seed=1"])
    curves = (tmp_path / "metrics.csv").read_bytes()
    with pytest.raises(UserError, match=message):
        find_checkpoint(resume, tmp_path, options)
    assert (tmp_path / "metrics.csv").read_bytes() == curves


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK half",
        {"state_dict": {}},
        torch.ones(3),
        {"global_step": 1, "callbacks": {"run": {"options": [["seed=1"]]}}},
        {"global_step": torch.ones(2), "callbacks": {"run": {"options": [], "before": {"val/spearman": 0.5}}}},
        {"global_step": 1, "callbacks": {"run": {"options": [], "before": {}}}},
    ],
)
def test_a_file_that_is_no_checkpoint_is_told(tmp_path, content):
    path = tmp_path / "checkpoints" / "last.ckpt"
    path.parent.mkdir()
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(UserError, match="last.ckpt is no checkpoint"):
        find_checkpoint("auto", tmp_path, [])


@pytest.mark.parametrize("content", [b"loss\n1\n", b"step\nx\n", b"step\n1,2\n", b"step\n\xff\n"])
def test_curves_that_are_damaged_are_told_and_stay(tmp_path, content):
    write_run(tmp_path)
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(UserError, match="metrics.csv is damaged, move it away to continue"):
        find_checkpoint("auto", tmp_path, [])
    assert (tmp_path / "metrics.csv").read_bytes() == content


def test_options_are_compared_in_any_order_and_without_the_one_that_says_to_go_on():
    assert given_options(["seed=1", "resume=auto", "a=2"]) == given_options(["a=2", "+resume=x", "seed=1"])
    assert given_options(["seed=1", "debug=true"]) == given_options(["seed=1"]) != given_options(["seed=2"])
