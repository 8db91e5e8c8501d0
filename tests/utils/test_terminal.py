"""An error is one line, and the exit status tells a user's mistake from a failure."""

import argparse
import os
import runpy
import shlex
import signal

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from rich.text import Text

from simcse_pl.__main__ import run
from simcse_pl.utils.errors import UserError, WriteError
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.terminal import hydra_option, integer, real, report_error, show, tracked


def raised(error, cause=None):
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (UserError("x: not that"), "x: not that", 2),
        (WriteError("the disk is gone"), "the disk is gone", 1),
        (raised(RuntimeError("of a library"), UserError("x: not that")), "x: not that", 2),
        (FileExistsError(17, "File exists", "a"), "[Errno 17] File exists: 'a'", 2),
        (OSError(28, "No space", "a"), "[Errno 28] No space: 'a' (--debug shows where)", 1),
    ],
)
def test_an_error_is_one_line_and_a_status(error, line, status, capfd):
    assert report_error(error, debug=False, debug_option="--debug") == status
    assert capfd.readouterr().err == f"error: {line}\n"


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "two"])
def test_a_count_is_1_or_more(text):
    assert integer("12") == 12
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{text} is not a number of 1 or more$"):
        integer(text)
    with pytest.raises(argparse.ArgumentTypeError, match="^-1 is not a number of 0 or more$"):
        integer("-1", least=0)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_a_real_number_is_finite(text):
    assert real("-2.5") == -2.5
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{text} is not a finite number$"):
        real(text)


def test_a_terminated_command_leaves_no_half_written_files(tmp_path):
    def work(arguments):
        with atomic_write(tmp_path):
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit, match="^143$"):
            run(argparse.ArgumentParser(), work, [])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("folder", ["outputs/a", "my outputs/语(1)", "it's", "C:\\dir\\", 'a\\"b', '"'])
def test_an_option_can_be_copied_to_a_shell(folder):
    (word,) = shlex.split(hydra_option("hydra.run.dir", folder))
    assert OverridesParser.create().parse_override(word).value() == folder


def test_an_error_in_code_of_ones_own_names_its_line(tmp_path, monkeypatch, capfd):
    (tmp_path / "my_losses.py").write_text("import json\ndef f(): json.loads('{')\n")
    monkeypatch.chdir(tmp_path)
    own = runpy.run_path("my_losses.py")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        own["f"]()
    assert report_error(caught.value, debug=False, debug_option="debug=true") == 2
    assert capfd.readouterr().err.startswith("error: my_losses.py:2: JSONDecodeError: ")


def test_a_bar_does_not_pass_the_write_of_standard_error_which_wandb_records(monkeypatch):
    owner, terminal = os.openpty()
    recorded = []
    with open(terminal, "w") as stderr, monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setattr("sys.stderr", stderr)
        stderr.write = recorded.append
        assert list(tracked(range(3), "a bar")) == [0, 1, 2] and not recorded
        shown = os.read(owner, 100_000).decode()
    os.close(owner)
    assert "a bar" in shown and "\x1b[2K" in shown


def test_a_pipe_that_nobody_reads_does_not_end_a_run(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        show(Text("a table"))
        show(Text("another one"))
