"""W&B runs: their mode, one run per folder, how they end, and what a server receives."""

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import wandb

from simcse_pl.results.run_files import WANDB_FILE
from simcse_pl.tracking import wandb_runs
from simcse_pl.tracking.wandb_logger import PLANE, Dashboard
from simcse_pl.tracking.wandb_runs import closing_run, remembered_run, start_run, where_to_look
from simcse_pl.utils.errors import Stopped, UserError
from tests.conftest import ROOT, environment
from tests.offline_wandb import offline_runs
from tests.wandb_server import wandb_server


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
        ("auto", "offline", None, True, "offline"),
        ("auto", "online", "offline", True, "online"),
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


def run_script(script, *arguments, cwd, status=0, **given):
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=cwd,
        env=environment(PYTHONPATH=str(ROOT), **given),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr


def test_online_without_a_login_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(wandb_runs.wandb, "login", lambda prompt, verify: False)
    with pytest.raises(UserError, match="^W&B: mode=online needs a login: run `wandb login`"):
        start_run(tmp_path, mode="online")


def test_long_names_are_truncated(tmp_path):
    with closing_run():
        start_run(tmp_path, "offline", name="model.dropout=0.1," * 8)
    (run,) = offline_runs(tmp_path)
    name = run.started.display_name
    assert len(name) == 128 and name.startswith("model.dropout=0.1,model") and name.endswith("…")


def test_each_folder_has_one_run_which_is_continued(tmp_path):
    for step, folder in enumerate(["first", "second", "first"]):
        (tmp_path / folder).mkdir(exist_ok=True)
        run = start_run(tmp_path / folder, "offline", project=f"project {folder}", name=folder, group="g", tags=["t"])
        assert where_to_look(run) == f"wandb sync {tmp_path / folder}/wandb"
        run.log({"step": step})
        with closing_run():
            pass
        offline_runs(tmp_path / folder)  # waits until the run has ended
    before, after = offline_runs(tmp_path / "first")
    (other,) = offline_runs(tmp_path / "second")
    assert before.started.run_id == after.started.run_id != other.started.run_id
    assert before.started.project == after.started.project == "project first"
    assert after.started.resume  # `wandb sync` appends it to the first part
    assert (before.started.display_name, before.started.run_group, list(before.started.tags)) == ("first", "g", ["t"])
    assert (before.exit, after.exit) == (0, 0) and after.curve("step") == [2]
    assert remembered_run(tmp_path / "first")["id"] == before.started.run_id


@pytest.mark.parametrize(
    "content",
    ["", '{"id": "a", "project": "b", "entity": null, "summary": 3}', "[" * 100_000],
)
def test_a_damaged_file_is_an_error(tmp_path, content):
    (tmp_path / WANDB_FILE).write_text(content)
    with pytest.raises(UserError, match="wandb_run.json is damaged, remove it to start a new W&B run: "):
        start_run(tmp_path, "offline")


@pytest.mark.parametrize(
    ("error", "preempted"), [(ValueError("no"), False), (KeyboardInterrupt(), False), (Stopped(15), True)]
)
def test_an_exception_marks_the_run_as_failed_and_stopped_as_preempted(tmp_path, error, preempted):
    start_run(tmp_path, "offline")
    with pytest.raises(type(error)), closing_run():
        raise error
    (run,) = offline_runs(tmp_path)
    assert (run.exit, run.preempting) == (1, preempted)
    assert wandb.run is None


@pytest.mark.slow
def test_a_killed_and_resumed_offline_run_is_synced_as_one_run(tmp_path):
    """With the real commands, after `wandb offline`."""
    no_server, key = "http://127.0.0.1:9", "a" * 40
    cli = "from wandb.cli.cli import cli; cli(sys.argv[1:])"
    run_script(f"import sys; {cli}", "offline", cwd=tmp_path)
    script = (
        "import os, signal, time; from simcse_pl.training.callbacks import BestCheckpoint; "
        "from simcse_pl.tracking.wandb_logger import Dashboard; "
        "logger = Dashboard('.', 'my run', project='mine'); "
        "validated = {'val/alignment': 0.5, 'val/uniformity': -2.0}; "
        "logger.log_metrics({'val/spearman': 0.25}, 0); logger.log_metrics({'val/spearman': 0.75, **validated}, 3); "
        "logger.after_save_checkpoint(BestCheckpoint('.', monitor='val/spearman')); "
        "logger.log_metrics({'train/loss': 0.5}, 5); time.sleep(4); os.kill(os.getpid(), signal.SIGKILL)"
    )
    run_script(script, cwd=tmp_path, status=-9, WANDB_API_KEY=key, WANDB_BASE_URL=no_server)
    logger = Dashboard(tmp_path, "my run", mode="offline", project="mine")
    logger.log_metrics({"train/loss": 0.5}, 5)
    logger.log_metrics({"val/spearman": 0.5}, 7)
    with closing_run():
        pass
    killed, last = offline_runs(tmp_path, killed=1)
    assert (killed.exit, last.exit) == (None, 0)
    with wandb_server() as (address, runs):
        run_script(f"import sys; {cli}", "sync", "wandb", cwd=tmp_path, WANDB_API_KEY=key, WANDB_BASE_URL=address)
    (run,) = (run for run in runs.values() if run["known"])
    assert [row["_step"] for row in run["history"]] == list(range(5))
    assert [row["trainer/global_step"] for row in run["history"]] == [0, 3, 6, 6, 7]
    assert [row.get("val/spearman") for row in run["history"]] == [0.25, 0.75, None, None, 0.5]
    best = {"val/spearman": 0.75, "val/alignment": 0.5, "val/uniformity": -2.0, "best_step": 3}
    assert {name: run["summary"].get(name) for name in best} == best
    assert run["summary"][f"Custom Chart Tables/{PLANE}_table"]["_type"] == "table-file"  # from the first part
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.synced"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("answers", [False, True])
def test_a_run_is_kept_if_the_server_does_not_answer_or_stops_answering(tmp_path, answers):
    """W&B's environment variables set its timeouts to two seconds."""
    script = (
        "import sys; from simcse_pl.tracking.wandb_runs import closing_run, start_run; run = start_run('.', 'online'); "
        "sys.stdin.readline(); run.log({'a': 1});\nwith closing_run(): print(run.offline)"
    )
    given = {"WANDB_API_KEY": "a" * 40, "WANDB_FINISH_TIMEOUT": "2", "WANDB_INIT_TIMEOUT": "30" if answers else "2"}
    command = [sys.executable, "-c", script]
    with wandb_server() as (address, runs):
        own = environment(PYTHONPATH=str(ROOT), **given, WANDB_BASE_URL=address if answers else "http://127.0.0.1:9")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=tmp_path, env=own, **pipes)
        while answers and not any(run["known"] for run in runs.values()):
            assert process.poll() is None
            time.sleep(0.1)
    output, _ = process.communicate("\n", timeout=60)
    assert process.returncode == 0 and output.split() == [str(not answers)]
    kept = list(tmp_path.glob("wandb/run-*/*.wandb" if answers else "wandb/offline-run-*/*.wandb"))
    assert len(kept) == 1 and kept[0].stat().st_size


def test_a_rejected_key_is_an_error(monkeypatch, tmp_path):
    def reject(**options):
        raise wandb.errors.AuthenticationError("401\nsee ...")

    monkeypatch.setattr(wandb_runs.wandb, "init", reject)
    with pytest.raises(UserError, match="W&B rejected the API key: run `wandb login`, or set WANDB_MODE=offline"):
        start_run(tmp_path, "offline")
