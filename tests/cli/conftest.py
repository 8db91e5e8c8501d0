"""Run a command in the test's process, its arguments, and the fixtures of the reports."""

import logging
import sys

import pytest

from simcse_pl.__main__ import main
from tests.reports.conftest import write_results, write_run, write_sweep

__all__ = ["write_results", "write_run", "write_sweep"]


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `simcse` in this process, and return its output and errors; status 2 prints one line."""
    handlers, level = logging.root.handlers[:], logging.root.level

    def run(*arguments, status=0):
        monkeypatch.setattr(sys, "argv", ["simcse", *map(str, arguments)])
        if status == 0:
            main()
            return capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        assert exit_.value.code == status and (not printed.out or arguments[0] == "train")  # which logs there
        assert printed.err.lstrip().startswith("error: ") and "\n" not in printed.err.strip()
        return printed

    yield run
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture
def encoder(make_model):
    """Arguments that select a small encoder."""
    return [make_model("bert"), "--pooling", "mean", "--device", "cpu"]
