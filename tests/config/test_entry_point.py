"""The exit status and the line of a command that fails, and the folder that it leaves."""

import contextlib
import sys
from types import SimpleNamespace

import pytest
from hydra.types import RunMode
from omegaconf import OmegaConf

from simcse_pl.cli import entry_point
from simcse_pl.utils.errors import SweepError, UserError

CONFIG = OmegaConf.create({"seed": 1, "debug": False})


@pytest.fixture
def ends(monkeypatch, capsys):
    """Run a task; return the exit status and what it printed to standard error."""

    def ends_(task, *options):
        monkeypatch.setattr(sys, "argv", ["train.py", *options])
        with pytest.raises(SystemExit) as end:
            entry_point.run(task)
        return end.value.code, capsys.readouterr().err

    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    return ends_


def raise_(error, cause=None):
    raise error from cause


def test_an_error_is_one_line_or_a_traceback(ends):
    assert ends(lambda: raise_(RuntimeError("in a callback"), UserError("x=1: no"))) == (2, "error: x=1: no\n")
    status, printed = ends(lambda: raise_(UserError("x=1: no")), "debug=true")
    assert status == 2 and "Traceback" in printed


def within_a_library():
    try:
        raise KeyboardInterrupt
    finally:
        raise AttributeError("'NoneType' object has no attribute '_invalidate_flags_cache'")  # OmegaConf's


def as_lightning_ends():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        sys.exit(1)


@pytest.mark.parametrize("task", [within_a_library, as_lightning_ends])
def test_ctrl_c_is_status_130(task, ends):
    assert ends(task) == (130, "interrupted\n")
    assert ends(lambda: entry_point.report_errors(lambda _: task())(CONFIG)) == (130, "interrupted\n")


@pytest.mark.parametrize(("error", "ends"), [(SweepError("another sweep's"), True), (UserError("of this job"), False)])
def test_only_a_sweep_error_ends_a_multirun(error, ends, monkeypatch, capsys):
    monkeypatch.setattr(entry_point.HydraConfig, "get", lambda: SimpleNamespace(mode=RunMode.MULTIRUN))
    with pytest.raises(SystemExit) if ends else contextlib.nullcontext() as end:
        assert entry_point.report_errors(lambda _: raise_(error))(CONFIG) is None
    assert capsys.readouterr().err == f"error: {error}\n" and (not ends or end.value.code == 2)


def test_a_run_that_did_not_start_leaves_its_folder_only_if_it_holds_other_files(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    (folder / "config").mkdir(parents=True)
    for name in ("config/config.yaml", "config/hydra.yaml", "config/overrides.yaml", "train.log", "config/mine.yaml"):
        (folder / name).write_text("x")
    runtime = SimpleNamespace(
        runtime=SimpleNamespace(output_dir=str(folder)), output_subdir="config", job=SimpleNamespace(name="train")
    )
    entry_point._remove_unused(runtime)
    assert len([*folder.rglob("*.*")]) == 5
    (folder / "config" / "mine.yaml").unlink()
    with monkeypatch.context() as within:
        within.chdir(folder)  # hydra.run.dir=.
        entry_point._remove_unused(runtime)
    assert len([*folder.rglob("*.*")]) == 4
    entry_point._remove_unused(runtime)
    assert not folder.exists()
