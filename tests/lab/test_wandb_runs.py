"""W&B runs: their mode, one run per folder, and how they end."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import wandb

from simcse_pl.lab.dashboards import remembered_run, start_run, where_to_look
from simcse_pl.loggers import closing_run
from simcse_pl.utils.errors import Stopped
from tests.offline_wandb import offline_runs


@pytest.fixture(autouse=True)
def _finish():
    yield
    wandb.finish()


def test_each_folder_has_one_run_which_is_continued(tmp_path):
    for step, folder in enumerate(["first", "second", "first"]):
        (tmp_path / folder).mkdir(exist_ok=True)
        given = {"project": f"project {folder}", "name": folder, "group": "g", "tags": ["t"]}
        with closing_run():
            run = start_run(tmp_path / folder, "offline", **given)
            assert where_to_look(run) == f"wandb sync {tmp_path / folder}/wandb"
            run.log({"step": step})
        offline_runs(tmp_path / folder)  # waits until the run has ended
    before, after = offline_runs(tmp_path / "first")
    (other,) = offline_runs(tmp_path / "second")
    assert before.started.run_id == after.started.run_id != other.started.run_id
    assert before.started.project == after.started.project == "project first"
    assert after.started.resume  # `wandb sync` appends it to the first part
    assert (before.started.display_name, before.started.run_group, list(before.started.tags)) == ("first", "g", ["t"])
    assert (before.exit, after.exit) == (0, 0) and after.curve("step") == [2]
    assert remembered_run(tmp_path / "first")["id"] == before.started.run_id


@pytest.mark.parametrize(("error", "preempted"), [(ValueError("no"), False), (Stopped(15), True)])
def test_an_exception_marks_the_run_as_failed_and_stopped_as_preempted(tmp_path, error, preempted):
    def fail():
        start_run(tmp_path, "offline")
        raise error

    with pytest.raises(type(error)), closing_run():
        fail()
    (run,) = offline_runs(tmp_path)
    assert (run.exit, run.preempting) == (1, preempted)
    assert wandb.run is None


@pytest.mark.parametrize("error", [None, ValueError])
def test_a_run_of_the_user_goes_on(tmp_path, error):
    run = start_run(tmp_path, "offline")
    with pytest.raises(error) if error else nullcontext(), closing_run():
        if error:
            raise error
    assert wandb.run is run


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
