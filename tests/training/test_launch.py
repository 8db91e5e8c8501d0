"""Runs of several processes: sweeps on DDP, killed ranks, signals, torchrun, submitit."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from simcse_pl.cli.entry_point import disable_hydra_output_on_other_ranks
from tests.conftest import ROOT, environment, tiny

DDP = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2"]


class Started:
    """A command in its own process group; an environment variable marks its children."""

    def __init__(self, *command):
        self.mark = f"STARTED_BY={uuid.uuid4().hex}"
        self.process = subprocess.Popen(
            ["env", self.mark, "OMP_NUM_THREADS=1", sys.executable, *map(str, command)],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def alive(self):
        """Return the command lines of all its processes by process id."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # the process has ended
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_text()
        return {number: words for number, words in found.items() if words}  # a zombie has none

    def kill(self, name, number):
        """Send a signal to the first of its processes that has a name in its command line."""
        os.kill(next(pid for pid, words in self.alive().items() if name in words), number)

    def until(self, condition):
        deadline = time.monotonic() + 240
        while not condition():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def end(self, seconds=300):
        """Return the exit status and standard error; check that no process is left."""
        stderr = self.process.communicate(timeout=seconds)[1]
        deadline = time.monotonic() + 10
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not self.alive()
        return self.process.returncode, stderr


@pytest.fixture
def start():
    started = []
    yield lambda *command: started.append(Started(*command)) or started[-1]
    for number in [number for one in started for number in one.alive()]:
        os.kill(number, signal.SIGKILL)


@pytest.fixture
def given(sentences, make_model):
    """Return options of a short run."""
    common = ["data=text", f"data.train={sentences}", "logger=csv", *tiny(make_model("bert")), "~callbacks.progress"]
    return [*common, "data.batch_size=4", "data.validation=[sample]"]


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


@pytest.mark.slow
def test_a_sweep_runs_jobs_of_two_ranks(start, given, tmp_path):
    """One job fails after its ranks have connected, and one trains. Each writes to its own folder."""
    sweep = tmp_path / "sweep"
    started = start("train.py", "-m", "objective=sbert,simcse", *DDP, *given, "val_every=3", f"hydra.sweep.dir={sweep}")
    status, stderr = started.end()
    assert status == 1 and stderr.rstrip().endswith("error: 1 of 2 jobs failed: 0")
    assert "needs a label for every row" in stderr
    results = results_of(sweep / "1")
    assert results["steps"] == 6 and results["choices"]["objective"] == "simcse"
    names = {path.name for path in (sweep / "1").iterdir()}
    assert {"config", "encoder", "metrics.csv", "results.json", "train.log"} <= names
    assert {path.name for path in sweep.iterdir() if path.stem != "sweep"} == {"0", "1", "multirun.yaml"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_ending_a_sweep_ends_its_job(start, given, tmp_path, how):
    """By Ctrl-C, which a terminal sends to all its processes, or by killing the sweep's process."""
    sweep = tmp_path / "sweep"
    endless = ["trainer.max_epochs=100000", "val_every=2"]
    started = start("train.py", "-m", "seed=1,2", *DDP, *given, *endless, f"hydra.sweep.dir={sweep}")
    started.until(lambda: (sweep / "0" / "checkpoints" / "last.ckpt").exists())
    os.kill(started.process.pid if how == signal.SIGKILL else -started.process.pid, how)
    status, stderr = started.end(60)
    assert status == (-9 if how == signal.SIGKILL else 130) and not (sweep / "0" / "results.json").exists(), stderr
    assert (how == signal.SIGKILL) != ("stopped after step " in stderr)
    assert not (sweep / "1").exists()


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_run(start, given, tmp_path, victim):
    endless = ["trainer.max_epochs=100000", "val_every=1000000", f"hydra.run.dir={tmp_path}/run", "seed=1"]
    started = start("train.py", *DDP, *given, *endless)
    started.until(lambda: len(started.alive()) >= 2 and (tmp_path / "run" / "hparams.yaml").exists())
    time.sleep(8)  # in the middle of training
    if victim:  # Lightning names this rank
        started.kill("train_ddp_process", signal.SIGKILL)
    else:
        started.process.kill()
    status, stderr = started.end(60)
    assert status in (1, -9) if victim else status == -9, stderr


@pytest.mark.slow
def test_two_torchrun_nodes_train_like_one_process(start, given, tmp_path):
    """Twenty steps without dropout; only one node writes a folder."""
    exact = ["trainer.precision=32-true", "model.dropout=0.0", "model.attention_dropout=0.0", "val_every=10"]
    common = ["train.py", *given, *exact, "trainer.max_epochs=10"]
    with socket.socket() as open_:
        open_.bind(("127.0.0.1", 0))
        port = open_.getsockname()[1]
    two = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=1", "trainer.num_nodes=2"]
    torchrun = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1"]
    torchrun.append(f"--master-port={port}")
    nodes = [
        start(*torchrun, f"--node-rank={node}", *common, *two, f"hydra.run.dir={tmp_path}/nodes") for node in range(2)
    ]
    assert [node.end()[0] for node in nodes] == [0, 0]
    status, stderr = start(*common, "trainer=cpu", f"hydra.run.dir={tmp_path}/one").end()
    assert status == 0, stderr
    nodes, one = (results_of(tmp_path / name) for name in ("nodes", "one"))
    assert nodes["steps"] == one["steps"] == 20
    weights, expected = (load_file(tmp_path / name / "encoder" / "model.safetensors") for name in ("nodes", "one"))
    torch.testing.assert_close(weights, expected, atol=1e-4, rtol=0)


@pytest.mark.slow
def test_a_job_of_two_ranks_preempted_by_submitit_is_resumed(start, given, tmp_path):
    sweep = tmp_path / "sweep"
    options = ["hydra/launcher=submitit_local", "seed=1", *DDP, *given, f"hydra.sweep.dir={sweep}"]
    run = start("train.py", "-m", *options, "trainer.max_epochs=150", "val_every=50")
    run.until(lambda: (sweep / "0" / "checkpoints" / "last.ckpt").exists())
    run.kill("submitit.core._submit", signal.SIGUSR2)
    status, stderr = run.end(400)
    assert status == 0, stderr
    assert results_of(sweep / "0")["steps"] == 300
    (log,) = (sweep / ".submitit").glob("*/*_log.err")
    step = re.search(r"stopped after step (\d+)", log.read_text())[1]
    why = "this is a job of a sweep, where resume=auto is the default"
    assert f"resuming from step {step}, because {why}" in (sweep / "0" / "train.log").read_text()


def test_a_sweep_under_torchrun_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", "seed=1,2"])
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match="2"):
        disable_hydra_output_on_other_ranks()
    assert capsys.readouterr().err == "error: a sweep starts the ranks of its jobs itself: run it without torchrun\n"
