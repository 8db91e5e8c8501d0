"""Runs of W&B: offline unless somebody is logged in, never a prompt, one for a folder, and how they end."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import wandb

from simcse_pl import wandb_runs
from simcse_pl.errors import Stopped, UserError
from simcse_pl.resume import WANDB_FILE
from simcse_pl.wandb_runs import closing_run, remembered_run, start_run, where_to_look
from tests.conftest import ROOT
from tests.offline_wandb import offline_runs


@pytest.fixture(autouse=True)
def _finish():
    yield
    wandb.finish()


@pytest.mark.parametrize(
    ("asked", "environment", "file", "logged_in", "expected"),
    [
        ("auto", None, None, False, "offline"),
        ("auto", None, None, True, "online"),
        ("auto", None, "offline", True, "offline"),
        ("auto", None, "disabled", True, "disabled"),
        ("auto", "offline", None, True, "offline"),
        ("auto", "online", "offline", True, "online"),
        ("auto", "disabled", None, False, "disabled"),
        ("offline", "online", None, True, "offline"),
        ("online", "offline", None, True, "online"),
    ],
)
def test_mode(asked, environment, file, logged_in, expected, monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if environment:
        monkeypatch.setenv("WANDB_MODE", environment)
    settings = SimpleNamespace(mode=file or "online")
    monkeypatch.setattr(wandb_runs.wandb, "setup", lambda: SimpleNamespace(settings=settings))
    monkeypatch.setattr(wandb_runs.wandb, "login", lambda prompt, verify: not prompt and logged_in)
    asked_for = {}
    run = SimpleNamespace(disabled=True)
    monkeypatch.setattr(wandb_runs.wandb, "init", lambda **options: asked_for.update(options) or run)
    assert start_run(tmp_path, mode=asked, name="n", group="g", job_type="j", tags=["t"]) is run
    assert asked_for["mode"] == expected and not (tmp_path / WANDB_FILE).exists()
    given = {"project": "simcse_pl", "name": "n", "group": "g", "job_type": "j", "tags": ["t"]}
    assert given.items() <= asked_for.items() and "id" not in asked_for


def test_wandb_offline_is_heeded_by_who_is_logged_in(tmp_path):
    """`wandb offline` writes this file into the folder that it is called in."""
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nmode = offline\n")
    clean = {name: value for name, value in os.environ.items() if name != "WANDB_MODE"}
    key = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9", "PYTHONPATH": str(ROOT)}
    asked = "from simcse_pl.wandb_runs import _mode; print(_mode('auto'))"
    done = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, env=clean | key, capture_output=True, text=True)
    assert done.stdout == "offline\n", done.stderr


def test_online_needs_somebody_who_is_logged_in(monkeypatch, tmp_path):
    monkeypatch.setattr(wandb_runs.wandb, "login", lambda prompt, verify: False)
    with pytest.raises(UserError, match="nobody is logged in; run `wandb login`"):
        start_run(tmp_path, mode="online")


def test_other_modes_are_refused(tmp_path):
    with pytest.raises(UserError, match="wandb.mode=cloud: choose one of auto, online, offline"):
        start_run(tmp_path, mode="cloud")


def test_a_folder_goes_on_in_its_run_and_no_two_share_one(tmp_path):
    for step, folder in enumerate(["first", "second", "first"]):
        (tmp_path / folder).mkdir(exist_ok=True)
        run = start_run(tmp_path / folder, "offline", project=f"project {folder}", name=folder, group="g", tags=["t"])
        assert where_to_look(run) == f"wandb sync {tmp_path / folder}/wandb"
        run.log({"step": step})
        with closing_run():
            pass
    before, after = offline_runs(tmp_path / "first")
    (other,) = offline_runs(tmp_path / "second")
    assert before.started.run_id == after.started.run_id != other.started.run_id
    assert before.started.project == after.started.project == "project first"
    assert after.started.resume, "`wandb sync` puts it behind the first"
    assert (before.started.display_name, before.started.run_group, list(before.started.tags)) == ("first", "g", ["t"])
    assert (before.exit, after.exit) == (0, 0) and after.curve("step") == [2]
    assert remembered_run(tmp_path / "first")["id"] == before.started.run_id


@pytest.mark.parametrize("content", ["", "[]", '{"id": "a"}'])
def test_a_damaged_file_is_told(tmp_path, content):
    (tmp_path / WANDB_FILE).write_text(content)
    with pytest.raises(UserError, match="wandb_run.json is damaged .*: remove it to begin a new W&B run"):
        start_run(tmp_path, "offline")


@pytest.mark.parametrize(
    ("error", "preempted"), [(ValueError, False), (UserError, False), (KeyboardInterrupt, False), (Stopped, True)]
)
def test_a_run_that_is_told_to_stop_is_preempted_and_another_has_failed(tmp_path, error, preempted):
    start_run(tmp_path, "offline")
    with pytest.raises(error), closing_run():
        raise error(15) if error is Stopped else error("no")
    (run,) = offline_runs(tmp_path)
    assert (run.exit, run.preempting) == (1, preempted)
    assert wandb.run is None, "the next job starts one of its own"


def test_what_was_logged_a_moment_ago_survives_a_kill(tmp_path):
    script = (
        "import os, signal, sys, time; from simcse_pl.wandb_runs import start_run; "
        "start_run(sys.argv[1], 'offline').log({'loss': 0.5}); time.sleep(4); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    (run,) = offline_runs(tmp_path, killed=1)
    assert run.exit is None and run.curve("loss") == [0.5]
    assert json.loads((tmp_path / WANDB_FILE).read_text())["id"] == run.started.run_id
