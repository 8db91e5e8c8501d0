"""The real commands on a disk that is full, without permission, and with a process killed: one line, and nothing half.

A command's places to write are counted in a run that ends well; then each run is refused one of them.
"""

import csv
import json
import multiprocessing
import os
import re
import signal
import time

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file

from simcse_pl.training.watchdog import watched_workers
from simcse_pl.utils.errors import FailureError
from tests.conftest import environment, tiny
from tests.faults import DENIED, FULL

READERS = {  # of what a command leaves under its final name
    ".json": lambda path: json.loads(path.read_text()),
    ".yaml": lambda path: yaml.safe_load(path.read_text()),
    ".csv": lambda path: list(csv.reader(path.open(newline=""), strict=True)),
    ".ckpt": lambda path: torch.load(path, weights_only=True),
    ".safetensors": load_file,
    ".npy": np.load,
    ".parquet": pd.read_parquet,
    ".jsonl": lambda path: pd.read_json(path, lines=True),
}
REASONS = {FULL: "No space left on device", DENIED: "Permission denied"}
AT_A_TIME = 6  # of a command's places, in CI


@pytest.fixture
def commands(make_model, sentences):
    """The commands that write, by their names, each with the folder that it writes to."""
    model = make_model("bert")
    encoder = [model, "--pooling", "mean"]
    small = ["data.batch_size=4", "data.validation=[sample]", "trainer=cpu", "trainer.max_steps=1", "val_every=1"]
    small += [f"+trainer.limit_{stage}_batches=1" for stage in ("val", "test")] + ["log_every=1", "resume=auto"]
    train = ["train.py", "data=text", f"data.train={sentences}", *tiny(model), *small]
    fit = ["postprocess=whitening", f"fit_on={sentences}"]
    search = [f"retrieval.corpus={sentences}", "retrieval.queries=[A man]"]
    simcse = ["-m", "simcse_pl"]
    return {
        "train": lambda to: [*train, "logger=csv", f"hydra.run.dir={to}/run"],
        "train with W&B": lambda to: [*train, "logger=wandb", f"hydra.run.dir={to}/run"],
        "evaluate": lambda to: [
            *("evaluate.py", f"encoder={model}", "pooling=mean", "tasks=[geometry]", *fit, *search),
            *(f"retrieval.folder={to}/index", f"hydra.run.dir={to}/run"),
        ],
        "encode npy": lambda to: [*simcse, "encode", *encoder, sentences, "--out", f"{to}/v.npy"],
        "encode parquet": lambda to: [*simcse, "encode", *encoder, sentences, "--out", f"{to}/v.parquet"],
        "encode jsonl": lambda to: [*simcse, "encode", *encoder, sentences, "--out", f"{to}/v.jsonl"],
        "index": lambda to: [*simcse, "index", *encoder, sentences, f"{to}/index"],
        "export": lambda to: [*simcse, "export", *encoder, f"{to}/export"],
        "export onnx": lambda to: [*simcse, "export", *encoder, f"{to}/export", "--onnx", "--int8"],
    }


@pytest.fixture
def run(commands, forks_of_session, tmp_path):
    """Run a command that writes under a folder of tmp_path, with a fault."""

    def run_(name, folder, fault=None):
        to = tmp_path / folder
        (to / "tmp").mkdir(parents=True, exist_ok=True)
        own = {"XDG_CACHE_HOME": f"{to}/cache", "TMPDIR": f"{to}/tmp", "WANDB_DATA_DIR": f"{to}/tmp"}
        given = environment(WANDB_MODE="offline", **own)
        return forks_of_session.run(*commands[name](to), environment=given, fault=fault), to

    return run_


@pytest.fixture
def places(run, tmp_path):
    """Run a command to its end, and tell where it wrote."""

    def places_(name):
        log = tmp_path / "places"
        done, _ = run(name, "counted", ["refuse", FULL, 0, [str(tmp_path / "counted")], str(log)])
        assert done.returncode == 0, done.stderr
        return log.read_text().splitlines()

    return places_


def told_by(done):
    """What a command says on standard error, without the line that a bar of progress leaves empty."""
    return [line for line in done.stderr.splitlines() if line.strip()]


def assert_told_and_whole(done, folder, reason):
    (line,) = told_by(done)
    assert done.returncode == 1 and line.startswith("error: ") and reason in line, done.stderr
    assert re.search(rf"{re.escape(str(folder))}\S*", line) and ".saving-" not in line, line
    for path in folder.rglob("*"):
        assert not path.name.startswith(".saving-"), path
        if path.is_file() and "wandb" not in path.parts:
            READERS.get(path.suffix, lambda path: None)(path)
    assert {path.name for path in (folder / "tmp").iterdir()} <= {".ses"}  # which is ONNX Runtime's


def some(places, count):
    """So many of the places, spread over all of them, the last among them."""
    return sorted({len(places) - round(k * len(places) / count) for k in range(count)} - {0})


SLOW = ("encode npy", "encode jsonl", "index", "export")  # they write as the others do


@pytest.mark.parametrize(
    "name", ["train", "evaluate", "encode parquet", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_place_that_cannot_be_written_to_is_named_and_nothing_half_is_left(name, run, places, tmp_path):
    for number, place in enumerate(some(places(name), AT_A_TIME if name != "train" else 8)):
        how = (FULL, DENIED)[number % 2]
        log, folder = str(tmp_path / "log"), str(tmp_path / "out")
        done, to = run(name, "out", ["refuse", how, place, [folder], log])
        if done.returncode == 0:  # what went well before needs fewer
            break
        assert_told_and_whole(done, to, REASONS[how])
    done, _ = run(name, "out")
    assert done.returncode == 0 or "is there already" in done.stderr or "holds an index" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("name", "size", "file"),
    [
        ("train", 100_000, "run/checkpoints/best.ckpt"),
        ("evaluate", 8_000, "run/results.json"),
        ("encode npy", 1_000, "v.npy"),
        ("encode parquet", 1_000, "v.parquet"),
        ("encode jsonl", 1_000, "v.jsonl"),
        ("index", 1_000, "index"),
        ("export", 5_000, "export"),
        ("export", 100_000, "export"),
    ],
)
def test_a_file_that_is_cut_short_while_it_is_written_is_not_kept(name, size, file, run):
    """A limit on the size of files, which native code meets as it meets a full disk."""
    done, to = run(name, "out", ["file_limit", size])
    assert_told_and_whole(done, to, "File too large")
    assert f"cannot write {(to / file).parent}" in done.stderr
    assert not (to / file).is_file()


@pytest.mark.by_hand
@pytest.mark.parametrize("how", [FULL, DENIED])
@pytest.mark.parametrize("name", ["train", "evaluate", "encode npy", "index", "export", "export onnx"])
def test_every_place_that_cannot_be_written_to(name, how, run, places, tmp_path):
    for place in range(1, len(places(name)) + 1):
        folder = str(tmp_path / f"out{place}")
        done, to = run(name, f"out{place}", ["refuse", how, place, [folder], str(tmp_path / "log")])
        if done.returncode == 0:
            break
        assert_told_and_whole(done, to, REASONS[how])
        done, _ = run(name, f"out{place}")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("how", ["kill_worker", "kill_worker_with_lock"])
def test_a_loaders_process_that_is_killed_is_told_and_the_run_goes_on(how, commands, forks_of_session, tmp_path):
    given = [*commands["train"](tmp_path), "data.num_workers=1", "trainer.max_steps=4", "trainer.max_epochs=9"]
    given = [option for option in given if option != "trainer.max_steps=1"]
    done = forks_of_session.run(*given, environment=environment(), fault=[how, 3])
    (line,) = told_by(done)
    assert done.returncode == 1
    assert re.fullmatch(
        r"error: DataLoader worker \(pid(\(s\))? \d+\) (is killed by signal: Killed|exited unexpectedly|was ended by "
        r"SIGKILL); resume=auto goes on, and data.num_workers=0 takes less memory",
        line,
    )
    done = forks_of_session.run(*given, environment=environment())
    assert done.returncode == 0 and json.loads((tmp_path / "run" / "results.json").read_text())["steps"] == 4
    assert "going on from step" in done.stdout


@watched_workers()
def killed_amid_a_library(says_from):
    """As inspect.getfullargspec does, when the signal comes while it is at work."""
    try:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
    except RuntimeError as error:
        if says_from:
            raise TypeError("unsupported callable") from error
        raise TypeError("unsupported callable")  # noqa: B904


@pytest.mark.parametrize("says_from", [True, False])
def test_it_is_told_where_a_library_made_another_error_of_it(says_from):
    with pytest.raises(FailureError, match=r"^DataLoader worker \(pid 7\) is killed by signal: Killed; resume=auto"):
        killed_amid_a_library(says_from)


@watched_workers()
def killed_amid_a_batch(worker, number):
    time.sleep(0.5)  # it is seen alive
    os.kill(worker.pid, number)
    worker.join()
    raise ConnectionResetError(104, "Connection reset by peer")


@pytest.mark.parametrize(
    ("number", "error", "line"),
    [
        (signal.SIGKILL, FailureError, r"DataLoader worker \(pid \d+\) was ended by SIGKILL; resume=auto goes on"),
        (signal.SIGTERM, ConnectionResetError, "Connection reset by peer"),
    ],
)
def test_it_is_told_where_torch_has_only_a_lost_connection(number, error, line):
    worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    worker.start()
    with pytest.raises(error, match=line):
        killed_amid_a_batch(worker, number)


def test_other_errors_of_a_run_are_left_as_they_are():
    with pytest.raises(RuntimeError, match="^out of memory$"), watched_workers():
        raise RuntimeError("out of memory")
