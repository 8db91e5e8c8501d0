"""Every target for a fixed number of inputs, in forks of one process; and what finds nothing can find something."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import environment
from tests.forks import ROOT

pytest.importorskip("atheris")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="atheris and the limits of memory are Linux's")


def test_no_reader_does_anything_but_read_or_refuse_in_one_line(tmp_path):
    command = [sys.executable, "-m", "tests.fuzz", "all", "--seed", "1", "--found", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=1200)
    found = "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(Path(tmp_path).glob("*.txt")))
    assert done.returncode == 0 and not found, done.stdout + done.stderr[-2000:] + found
    assert done.stdout.count(" 0 found") > 40


CARELESS = """
import pickle, sys
from pathlib import Path
from simcse_pl.errors import UserError
from tests.fuzz.engine import Target, fuzz

def read(folder):
    content = (folder / "a").read_bytes()
    if content.startswith(b"x"):
        raise UserError("no file is named")
    if content.startswith(b"y"):
        (folder.parent / "escaped").write_text("")
    if content.startswith(b"z"):
        pickle.loads(pickle.dumps(Path("a")))
    if content.startswith(b"memory"):
        bytearray(1 << 29)
    if content.startswith(b"w"):
        raise KeyError

seeds = [b"sound", b"x", b"y", b"z", b"w", b"memory"]
print(fuzz("careless", Target({"a": seeds}, read), 30, 1, Path(sys.argv[1])))
"""


def test_the_engine_finds_what_a_careless_reader_does(tmp_path):
    command = [sys.executable, "-c", CARELESS, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300)
    kinds = {path.read_text().splitlines()[0] for path in tmp_path.glob("*.txt")}
    expected = {"no line that names the file, no line of ours", "did what it may not", "took too much"}
    assert kinds == expected | {"KeyError, no line of ours"}, done.stdout + done.stderr
