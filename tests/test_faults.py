"""The commands with a full disk, without permission to write, and with a killed process.

They end with one error line and leave no half-written file. The writes of a command are counted in a
run without faults; then one write fails per run.
"""

import csv
import json
import re

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.conftest import environment
from tests.support.faults import DENIED, FULL

READERS = {  # of the files that a command leaves
    ".json": lambda path: json.loads(path.read_text()),
    ".yaml": lambda path: yaml.safe_load(path.read_text()),
    ".csv": lambda path: list(csv.reader(path.open(newline=""), strict=True)),
    ".ckpt": lambda path: torch.load(path, weights_only=True),
    ".safetensors": load_file,
    ".npy": np.load,
    ".npz": lambda path: dict(np.load(path)),
}
REASONS = {FULL: "No space left on device", DENIED: "Permission denied"}


@pytest.fixture
def run(make_model, sentences, pairs, short_run, forks_of_session, tmp_path):
    """Run a command that writes to a folder in tmp_path, with a fault."""
    encoder = [make_model("bert"), "--pooling", "mean"]
    small = ["trainer=cpu", "trainer.max_steps=1", "val_every=1", "log_every=1", "resume=auto", f"data.test={pairs}"]
    train = ["train.py", *short_run, *small]
    encode = ["-m", "simcse_pl", "encode", *encoder, sentences, "--out"]
    commands = {
        "train": lambda to: [*train, f"hydra.run.dir={to}/run"],
        "encode": lambda to: [*encode, f"{to}/v.npy"],
        "index": lambda to: ["-m", "simcse_pl", "index", *encoder, sentences, f"{to}/index"],
    }

    def run_(name, folder, fault=None):
        to = tmp_path / folder
        (to / "tmp").mkdir(parents=True, exist_ok=True)
        own = {"XDG_CACHE_HOME": f"{to}/cache", "TMPDIR": f"{to}/tmp", "WANDB_DATA_DIR": f"{to}/tmp"}
        return forks_of_session.run(*commands[name](to), environment=environment(**own), fault=fault), to

    return run_


def assert_one_error_and_no_half_files(done, folder, reason):
    (line,) = filter(str.strip, done.stderr.splitlines())
    assert done.returncode == 1 and line.startswith("error: ") and reason in line, done.stderr
    assert re.search(rf"{re.escape(str(folder))}\S*", line) and ".saving-" not in line, line
    for path in folder.rglob("*"):
        assert not path.name.startswith(".saving-"), path
        if path.suffix in READERS:
            READERS[path.suffix](path)
    assert {path.name for path in (folder / "tmp").iterdir()} <= {".ses"}


@pytest.mark.parametrize("name", ["train", "encode"])
def test_a_failed_write_is_named_and_leaves_no_half_file(name, run, tmp_path):
    """Some of the writes, evenly spaced; a later run needs fewer, as an earlier one left some files."""
    log, folder = tmp_path / "log", str(tmp_path / "out")
    done, _ = run(name, "counted", ["fail_write", FULL, 0, [str(tmp_path / "counted")], str(log)])
    assert done.returncode == 0, done.stderr
    writes = log.read_text().count("\n")
    for number, write in enumerate(range(1, writes + 1, max(1, writes // 3))):
        how = (FULL, DENIED)[number % 2]
        done, to = run(name, "out", ["fail_write", how, write, [folder], str(log)])
        if done.returncode == 0:
            assert number, "no write failed"
            break
        assert_one_error_and_no_half_files(done, to, REASONS[how])
    done, _ = run(name, "out")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "size", "file"),
    [
        ("train", 100_000, "run/checkpoints/best.ckpt"),
        ("encode", 1_000, "v.npy.shards/000000.npz"),
        ("index", 1_000, "index"),
    ],
)
def test_a_file_that_exceeds_the_limit_is_not_kept(name, size, file, run):
    """Native code meets a limit on file sizes as it meets a full disk."""
    done, to = run(name, "out", ["file_limit", size])
    assert_one_error_and_no_half_files(done, to, "File too large")
    assert f"cannot write {to / file}: " in done.stderr
    assert not (to / file).is_file()
