"""Runs of several processes: sweeps on DDP, killed ranks, signals, torchrun, submitit."""

import contextlib
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from simcse_pl.cli import disable_hydra_output_on_other_ranks
from simcse_pl.lab.multirun import Jobs, Share, check_jobs, share_of_job
from simcse_pl.utils.errors import Stopped
from simcse_pl.utils.files import read_json
from tests.conftest import ROOT, environment

DDP = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2"]


class Started:
    """A command in its own process group; an environment variable marks its children."""

    def __init__(self, *command, **variables):
        self.mark = f"STARTED_BY={uuid.uuid4().hex}"
        self.process = subprocess.Popen(
            ["env", self.mark, "OMP_NUM_THREADS=1", sys.executable, *map(str, command)],
            cwd=ROOT,
            env=environment(**variables),
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
    yield lambda *command, **variables: started.append(Started(*command, **variables)) or started[-1]
    for number in [number for one in started for number in one.alive()]:
        os.kill(number, signal.SIGKILL)


@pytest.fixture
def given(short_run):
    return [*short_run, "~callbacks.progress"]


JOB = """
import os, sys, time
file, name, together, to_parent = sys.argv[1:]
def record(what):
    with open(file, "a") as events:
        print(what, name, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("OMP_NUM_THREADS"), file=events)
def started():
    return open(file).read().count("start")
record("start")
if to_parent != "0" and started() == 2:
    os.kill(os.getppid(), int(to_parent))
while started() < int(together):
    time.sleep(0.02)
record("end")
"""


@pytest.fixture
def run_jobs(tmp_path, monkeypatch):
    """Run a job for each share; return which jobs ran at each start, as {name: GPUs}, and the last job's threads.

    A job ends when as many as `together` have started. When two have, this process gets the signal `to_parent`.
    """
    (tmp_path / "job_of_test.py").write_text(JOB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def run(*shares, together=1, to_parent=0):
        jobs, running, at_starts = Jobs(), {}, []
        for number, share in enumerate(shares):
            (tmp_path / str(number)).mkdir()
            arguments = [tmp_path / "events", number, together, int(to_parent)]
            jobs.start("job_of_test", [*map(str, arguments)], tmp_path / str(number), share)
        jobs.wait()
        for line in (tmp_path / "events").read_text().splitlines():
            what, name, gpus, threads = line.split()
            if what == "start":
                running[int(name)] = gpus.split(",")
                at_starts.append(dict(running))
            else:
                del running[int(name)]
        return at_starts, threads

    return run


UUIDS = ["GPU-1e4d", "GPU-77b0", "MIG-3c21", "MIG-9a05"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["optimizer.lr=1e-5,fast"], "error: optimizer.lr=fast: it should be a valid number"),
        (["sweep=table_3_dropout", "size=mini", "sweep.row='0.1',9"], "error: sweep.row=9: choose one of 0.0, "),
        (["sweep=table_3_dropout", "size=mini"], ""),
    ],
)
def test_the_options_of_all_jobs_are_checked_before_the_first_starts(options, message, multirun_config, capsys):
    config = multirun_config(*options, "seed=1,2")
    with pytest.raises(SystemExit) if message else contextlib.nullcontext():
        assert check_jobs(config) == 2 * len(config.sweep.rows)
    assert capsys.readouterr().err.startswith(message)


def test_a_warning_of_all_jobs_is_printed_once(multirun_config, caplog):
    check_jobs(multirun_config("model.name=mine", "seed=1,2,3"))
    assert [text.startswith("model.name: ") for text in caplog.messages] == [True]


def test_jobs_of_one_two_and_four_gpus_never_share_one(run_jobs):
    at_starts, _ = run_jobs(*[Share(4 // devices, devices, UUIDS) for devices in (1, 2, 1, 4, 2, 1, 2)], together=3)
    assert max(Counter(itertools.chain(*running.values())).most_common(1)[0][1] for running in at_starts) == 1
    gpus = {name: len(own) for running in at_starts for name, own in running.items()}
    assert gpus == {0: 1, 1: 2, 2: 1, 3: 4, 4: 2, 5: 1, 6: 2}


def test_more_jobs_than_gpus_share_them_evenly(run_jobs):
    at_starts, _ = run_jobs(*[Share(4, 1, ["0", "1"])] * 4, together=4)
    assert sorted(gpu for (gpu,) in at_starts[-1].values()) == ["0", "0", "1", "1"]


def test_jobs_on_a_cpu_divide_its_cores(run_jobs, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(12))
    at_starts, threads = run_jobs(*[Share(2, 3)] * 4, together=2)
    assert (max(map(len, at_starts)), threads) == (2, "2")


def test_a_failed_job_does_not_stop_the_others_and_says_why(run_jobs, capfd):
    assert len(run_jobs(*[Share(2)] * 3, together="none")[0]) == 3
    assert capfd.readouterr().out.count(": status 1: ValueError: ") == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_jobs_and_starts_no_other(run_jobs, tmp_path, number):
    before = signal.getsignal(number)
    with pytest.raises(Stopped) as stopped:
        run_jobs(*[Share(2)] * 4, together=9, to_parent=number)
    assert stopped.value.code == 128 + number and signal.getsignal(number) is before
    assert sorted(line.split()[1] for line in (tmp_path / "events").read_text().splitlines()) == ["0", "1"]


@pytest.mark.parametrize(
    ("devices", "jobs", "share"),
    [(1, None, (4, 1)), (2, None, (2, 2)), (3, None, (1, 3)), (-1, None, (1, 4)), (9, None, (1, 9)), (1, 8, (8, 1))],
)
def test_as_many_jobs_run_at_once_as_there_are_gpus_for(devices, jobs, share, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert share_of_job({"accelerator": "auto", "devices": devices}, jobs) == Share(*share, ["0", "1", "2", "3"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, MIG-3c21,7,-1,1")
    assert share_of_job({"accelerator": "gpu", "devices": 1}, None) == Share(3, 1, ["5", "MIG-3c21", "7"])
    assert share_of_job({"accelerator": "cpu", "devices": 2}, None) == Share(1, 2, [])
    assert share_of_job({"accelerator": "gpu", "devices": [1, 3]}, None) == Share(1, 2)


@pytest.mark.slow
def test_a_sweep_runs_jobs_of_two_ranks(start, given, tmp_path):
    """One job fails after its ranks have connected, and one trains. Each writes to its own folder."""
    sweep = tmp_path / "sweep"
    started = start("train.py", "-m", "objective=sbert,simcse", *DDP, *given, "val_every=3", f"hydra.sweep.dir={sweep}")
    status, stderr = started.end()
    assert status == 1 and stderr.rstrip().endswith("error: 1 of 2 jobs failed: 0")
    assert "takes 2 sentences and a label in each row" in stderr
    results = read_json(sweep / "1" / "results.json")
    assert results["steps"] == 6 and results["choices"]["objective"] == "simcse"
    assert {path.name for path in sweep.iterdir() if not path.stem.startswith("sweep")} == {"0", "1", "multirun.yaml"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_ending_a_sweep_ends_its_jobs_and_their_ranks(start, given, tmp_path, how):
    """By a signal, as a terminal sends it to all processes of the sweep, or by killing the sweep's process."""
    sweep, killed = tmp_path / "sweep", how == signal.SIGKILL
    endless = ["trainer.max_epochs=100000", "val_every=2"]
    started = start("train.py", "-m", "seed=1,2", *DDP, *given, *endless, f"hydra.sweep.dir={sweep}")
    started.until(lambda: (sweep / "0" / "checkpoints" / "last.ckpt").exists())
    os.kill(started.process.pid if killed else -started.process.pid, how)
    status, stderr = started.end(60)
    assert status == (-9 if killed else 128 + how) and not [*sweep.glob("?/results.json")], stderr
    assert ("stopped after step " in stderr) != killed and not [*sweep.glob("1/checkpoints")]


@pytest.mark.slow
def test_a_killed_rank_ends_the_run(start, given, tmp_path):
    endless = ["trainer.max_epochs=100000", "val_every=10", f"hydra.run.dir={tmp_path}/run"]
    started = start("train.py", *DDP, *given, *endless)
    started.until(lambda: (tmp_path / "run" / "checkpoints" / "last.ckpt").exists())
    started.kill("train_ddp_process", signal.SIGKILL)  # Lightning names this rank
    status, stderr = started.end(60)
    assert status in (1, -9), stderr


def torchrun_node(node, port):
    """Return the variables and the command that start train.py on one of two nodes, which both are this machine."""
    command = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"]
    return {}, [*command, f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1", "-m", "simcse_pl", "train"]


def slurm_node(node, port):
    job = {"JOB_ID": port, "JOB_NAME": "train", "NODELIST": "127.0.0.1", "NNODES": 2, "NODEID": node}
    job |= {"NTASKS": 2, "NTASKS_PER_NODE": 1, "PROCID": node, "LOCALID": 0}
    return {"MASTER_PORT": str(port)} | {f"SLURM_{name}": str(job[name]) for name in job}, ["train.py"]


def is_free(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.slow
def test_two_nodes_train_like_one_process(start, run_command, given, tmp_path):
    """Twenty steps without dropout; only one node writes a folder."""
    exact = ["trainer.precision=32-true", "model.dropout=0.0", "model.attention_dropout=0.0", "val_every=10"]
    common = [*given, *exact, "trainer.max_epochs=10"]
    two = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=1", "trainer.num_nodes=2"]
    run_command("train.py", *common, "trainer=cpu", f"hydra.run.dir={tmp_path}/one")
    expected = load_file(tmp_path / "one" / "encoder" / "model.safetensors")
    ports = range(20_000 + os.getpid() % 10_000, 32_000)  # the system gives others to connections
    for node_of, port in zip((torchrun_node, slurm_node), filter(is_free, ports), strict=False):
        folder = tmp_path / node_of.__name__
        commands = [node_of(node, port) for node in range(2)]
        nodes = [start(*words, *common, *two, f"hydra.run.dir={folder}", **variables) for variables, words in commands]
        ends = [node.end() for node in nodes]
        assert [status for status, _ in ends] == [0, 0], ends
        assert [read_json(place / "results.json")["steps"] for place in (folder, tmp_path / "one")] == [20, 20]
        weights = load_file(folder / "encoder" / "model.safetensors")
        torch.testing.assert_close(weights, expected, atol=1e-4, rtol=0)


@pytest.mark.slow
def test_a_job_of_two_ranks_preempted_by_submitit_is_resumed(start, given, tmp_path):
    sweep = tmp_path / "sweep"
    options = ["hydra/launcher=submitit_local", "seed=1", *DDP, *given, f"hydra.sweep.dir={sweep}"]
    run = start("train.py", "-m", *options, "trainer.max_epochs=60", "val_every=20")
    run.until(lambda: (sweep / "0" / "checkpoints" / "last.ckpt").exists())
    run.kill("submitit.core._submit", signal.SIGUSR2)
    status, stderr = run.end(400)
    assert status == 0, stderr
    assert read_json(sweep / "0" / "results.json")["steps"] == 120
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
