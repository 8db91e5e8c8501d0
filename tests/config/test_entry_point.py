"""How a front door ends: whose fault it was, in one line; and a traceback for whoever asks."""

import contextlib
import sys
from types import SimpleNamespace

import pytest
from hydra.types import RunMode
from omegaconf import OmegaConf

from simcse_pl.config import entry_point
from simcse_pl.utils.errors import SweepError, UserError

CONFIG = OmegaConf.create({"seed": 1, "debug": False})


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("x=1: no\nmore"), 2, "error: x=1: no\\nmore\n"),
        (
            OSError(28, "No space left on device", "x"),
            1,
            "error: [Errno 28] No space left on device: 'x' (debug=true shows where)\n",
        ),
        (
            KeyError("x"),
            1,
            "error: KeyError: 'x' (this should not happen; debug=true shows where)\n",
        ),
    ],
)
def test_an_error_is_one_line(error, status, line, monkeypatch, capsys):
    def main():
        raise error

    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    with pytest.raises(SystemExit) as end:
        entry_point.run(main)
    assert (end.value.code, capsys.readouterr().err) == (status, line)
    monkeypatch.setattr(sys, "argv", ["train.py", "debug=true"])
    with pytest.raises(SystemExit) as end:
        entry_point.run(main)
    assert end.value.code == status and "Traceback" in capsys.readouterr().err


def test_the_users_mistake_is_found_among_the_causes(monkeypatch, capsys):
    def main():
        raise RuntimeError("in a callback") from UserError("x=1: no")

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as end:
        entry_point.run(main)
    assert (end.value.code, capsys.readouterr().err) == (2, "error: x=1: no\n")


def amid_a_library():
    try:
        raise KeyboardInterrupt
    finally:
        raise AttributeError("'NoneType' object has no attribute '_invalidate_flags_cache'")  # OmegaConf's


def as_lightning_ends():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        sys.exit(1)


@pytest.mark.parametrize("task", [amid_a_library, as_lightning_ends])
@pytest.mark.parametrize(
    "door", [lambda task: task, lambda task: lambda: entry_point.report_errors()(lambda _: task())(CONFIG)]
)
def test_ctrl_c_is_told_whatever_is_made_of_it(task, door, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as end:
        entry_point.run(door(task))
    assert (end.value.code, capsys.readouterr().err) == (130, "interrupted\n")


@pytest.mark.parametrize(("error", "ends"), [(SweepError("another sweep's"), True), (UserError("of this job"), False)])
def test_a_mistake_of_all_jobs_ends_a_sweep(error, ends, monkeypatch, capsys):
    def task(_):
        raise error

    monkeypatch.setattr(entry_point.HydraConfig, "get", lambda: SimpleNamespace(mode=RunMode.MULTIRUN))
    with pytest.raises(SystemExit) if ends else contextlib.nullcontext() as end:
        assert entry_point.report_errors()(task)(CONFIG) is None
    assert capsys.readouterr().err == f"error: {error}\n" and (not ends or end.value.code == 2)


@pytest.fixture
def refused(tmp_path):
    """The folder of a run that was refused, as Hydra leaves it; call it to remove what is unused."""
    folder = tmp_path / "run"
    (folder / "config").mkdir(parents=True)
    for name in ("config/config.yaml", "config/hydra.yaml", "config/overrides.yaml", "train.log"):
        (folder / name).write_text("x")
    runtime = SimpleNamespace(
        runtime=SimpleNamespace(output_dir=str(folder)), output_subdir="config", job=SimpleNamespace(name="train")
    )
    return folder, lambda: entry_point._remove_unused(runtime)


def test_a_refused_run_leaves_no_folder(refused):
    folder, remove = refused
    remove()
    assert not folder.exists()


def test_a_refused_run_removes_nothing_of_the_users(refused, monkeypatch):
    folder, remove = refused
    (folder / "config" / "mine.yaml").write_text("x")
    remove()
    assert len([*folder.rglob("*.*")]) == 5
    (folder / "config" / "mine.yaml").unlink()
    monkeypatch.chdir(folder)
    remove()
    assert folder.is_dir(), "the working folder, given as hydra.run.dir"
