"""metrics.csv, which goes on where it ends; the W&B logger: offline unless somebody is logged in, never a prompt."""

import pandas
import pytest
import wandb

from simcse_pl import loggers
from simcse_pl.errors import UserError
from simcse_pl.loggers import CurvesLogger, wandb_logger


@pytest.fixture(autouse=True)
def _finish():
    yield
    wandb.finish()


@pytest.mark.parametrize(
    ("asked", "environment", "logged_in", "expected"),
    [
        ("auto", None, False, "offline"),
        ("auto", None, True, "online"),
        ("auto", "offline", True, "offline"),
        ("auto", "disabled", False, "disabled"),
        ("offline", None, True, "offline"),
        ("online", None, True, "online"),
    ],
)
def test_mode(asked, environment, logged_in, expected, monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if environment:
        monkeypatch.setenv("WANDB_MODE", environment)
    monkeypatch.setattr(loggers.wandb, "login", lambda prompt, verify: not prompt and logged_in)
    asked_for = {}
    start = wandb.init

    def init(**options):
        asked_for.update(options)
        return start(**options | {"mode": "disabled"})

    monkeypatch.setattr(loggers.wandb, "init", init)
    wandb_logger(tmp_path, mode=asked, name="n", group="g", tags=["t"])
    assert asked_for["mode"] == expected
    assert (asked_for["name"], asked_for["group"], asked_for["tags"]) == ("n", "g", ["t"])


def test_online_needs_somebody_who_is_logged_in(monkeypatch, tmp_path):
    monkeypatch.setattr(loggers.wandb, "login", lambda prompt, verify: False)
    with pytest.raises(UserError, match="nobody is logged in; run `wandb login`"):
        wandb_logger(tmp_path, mode="online")


def test_other_modes_are_refused(tmp_path):
    with pytest.raises(UserError, match="logger.wandb.mode=cloud: choose one of auto, online, offline"):
        wandb_logger(tmp_path, mode="cloud")


def test_other_ranks_start_no_run(monkeypatch, tmp_path):
    monkeypatch.setattr(loggers, "is_first_process", lambda: False)
    monkeypatch.setattr(loggers.wandb, "init", lambda **_: pytest.fail("a run on rank 1"))
    wandb_logger(tmp_path, mode="offline")


def curves(folder):
    return CurvesLogger(folder, name="", version="")


def test_curves_go_on_where_the_file_ends(tmp_path):
    first = curves(tmp_path)
    first.log_metrics({"train/loss": 0.1 + 0.2}, step=0)
    first.finalize("failed")
    second = curves(tmp_path)
    second.log_metrics({"train/loss": 0.25, "train/new": 1.0}, step=1)
    second.finalize("success")
    rows = pandas.read_csv(tmp_path / "metrics.csv")
    assert rows["step"].tolist() == [0, 1] and rows["train/loss"].tolist() == [0.1 + 0.2, 0.25]
    assert rows["train/new"].isna().tolist() == [True, False]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_what_was_validated_is_on_the_disk_at_once(tmp_path):
    logger = curves(tmp_path)
    logger.log_metrics({"train/loss": 0.5}, step=0)
    assert not (tmp_path / "metrics.csv").exists()
    logger.log_metrics({"val/spearman": 0.75}, step=0)
    assert pandas.read_csv(tmp_path / "metrics.csv")["val/spearman"].dropna().tolist() == [0.75]
