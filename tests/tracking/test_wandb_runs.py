"""W&B runs: their mode, one run per folder, and how they end."""

from types import SimpleNamespace

import pytest
import wandb

from simcse_pl.results.run_files import WANDB_FILE
from simcse_pl.tracking.wandb_runs import closing_run, remembered_run, start_run, where_to_look
from simcse_pl.utils.errors import Stopped, UserError
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
    monkeypatch.setattr(wandb, "setup", lambda: SimpleNamespace(settings=settings))
    monkeypatch.setattr(wandb, "login", lambda prompt, verify: not prompt and logged_in)
    asked_for = {}
    run = SimpleNamespace(disabled=True)
    monkeypatch.setattr(wandb, "init", lambda **options: asked_for.update(options) or run)
    assert start_run(tmp_path, mode=asked, name="n", group="g", job_type="j", tags=["t"]) is run
    assert asked_for["mode"] == expected and not (tmp_path / WANDB_FILE).exists()
    given = {"project": "simcse_pl", "name": "n", "group": "g", "job_type": "j", "tags": ["t"]}
    assert given.items() <= asked_for.items() and "id" not in asked_for


def test_online_without_a_login_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(wandb, "login", lambda prompt, verify: False)
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


def test_a_damaged_file_is_an_error(tmp_path):
    (tmp_path / WANDB_FILE).write_text('{"id": "a"')
    with pytest.raises(UserError, match=r"wandb_run.json is damaged, remove it to start a new W&B run: "):
        start_run(tmp_path, "offline")


@pytest.mark.parametrize(("error", "preempted"), [(ValueError("no"), False), (Stopped(15), True)])
def test_an_exception_marks_the_run_as_failed_and_stopped_as_preempted(tmp_path, error, preempted):
    start_run(tmp_path, "offline")
    with pytest.raises(type(error)), closing_run():
        raise error
    (run,) = offline_runs(tmp_path)
    assert (run.exit, run.preempting) == (1, preempted)
    assert wandb.run is None


@pytest.mark.parametrize("error", [wandb.errors.CommError, wandb.errors.AuthenticationError])
def test_a_run_is_offline_if_the_server_does_not_answer_or_rejects_the_key(error, monkeypatch, tmp_path, caplog):
    def init(mode, **options):
        if mode == "online":
            raise error("Run initialization has timed out\nsee ...")
        return SimpleNamespace(disabled=True, mode=mode)

    monkeypatch.setattr(wandb, "login", lambda prompt, verify: True)
    monkeypatch.setattr(wandb, "init", init)
    assert start_run(tmp_path, mode="online").mode == "offline"
    assert "so this run is offline: Run initialization has timed out" in caplog.text
