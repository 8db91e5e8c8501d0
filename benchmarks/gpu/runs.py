"""Runs of train.py on one device, on all devices, and killed and resumed: their curves against those of the CPU."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch

from benchmarks.gpu.correctness import ROWS, Record, checked, prepared
from simcse_pl.config import CONF
from simcse_pl.results.run_files import CURVES_FILE
from simcse_pl.utils.errors import UserError

_STEPS, _CHECKPOINT_EVERY, _KILLED_AFTER = 8, 4, 6
_TOLERANCE = 1e-2  # of the relative error of a curve, which grows with the steps
_CURVES = ("train/loss", "train/grad_norm")
_CLONE = Path(__file__).parents[2]
_SHARDING = ("ddp", "fsdp")  # choices of conf/trainer, if they exist


class KillAfter(pl.Callback):
    """Kill the process after some steps, as the system does when memory runs out."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Kill the process."""
        if trainer.global_step == self.steps:
            os.kill(os.getpid(), signal.SIGKILL)


def options_of(device: str, kind: str = "gpu", devices: int = 1) -> list[str]:
    """Return the options of a trainer."""
    return [f"trainer={kind}", f"trainer.accelerator={device.replace('cuda', 'gpu')}", f"trainer.devices={devices}"]


def train(folder: Path, run: str, *options: str, killed: bool = False) -> dict[str, list[float]]:
    """Run train.py in float32 without dropout, and return its curves.

    Args:
        folder: that of the model and the data (see `prepared`).
        run: the name of the run's folder.
        options: further options.
        killed: whether the process is expected to be killed.
    """
    given = ["setting=unsupervised", "data=text", "model=bert", f"model.name={folder}", "model.dropout=0"]
    given += [f"data.train={folder}/sentences.txt", f"data.validation={folder}/pairs.tsv", f"data.batch_size={ROWS}"]
    given += [f"trainer.max_steps={_STEPS}", f"val_every={_CHECKPOINT_EVERY}", "log_every=1", "logger=csv"]
    given += ["trainer.precision=32-true", "model.attention_dropout=0", f"hydra.run.dir={folder}/{run}", "model.head=mlp"]
    exact = {"NVIDIA_TF32_OVERRIDE": "0", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "ignore", "train.py", *given, *options]
    done = subprocess.run(command, cwd=_CLONE, env=os.environ | exact, capture_output=True, text=True, check=False)
    if done.returncode != (-signal.SIGKILL if killed else 0):
        raise UserError(f"status {done.returncode}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    if killed:
        return {}
    with open(folder / run / CURVES_FILE, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row[_CURVES[0]]]
    return {name: [float(row[name]) for row in rows] for name in _CURVES}


def resumed(folder: Path, options: Sequence[str]) -> dict[str, list[float]]:
    """Return the curves of a run that is killed after a checkpoint, and resumed."""
    train(folder, "killed", *options, *_killed_by(_KILLED_AFTER), killed=True)
    return train(folder, "killed", *options, "resume=auto")


def _killed_by(steps: int) -> list[str]:
    return [f"+callbacks.kill._target_={__name__}.KillAfter", f"+callbacks.kill.steps={steps}"]


def difference(curves: dict[str, list[float]], expected: dict[str, list[float]]) -> Record:
    """Return the largest relative error of each curve."""
    assert all(len(own) == _STEPS for own in (*curves.values(), *expected.values()))
    errors = [
        max(abs(own - other) / abs(other) for own, other in zip(curves[name], expected[name], strict=True))
        for name in _CURVES
    ]
    return {"errors": {"float32": errors}, "passed": max(errors) <= _TOLERANCE}


def runs(device: str, tiny: bool) -> Iterator[Record]:
    """Compare the curves of runs on one device and on all, and of one that is killed and resumed, with the CPU's."""
    count = 2 if device == "cpu" else torch.cuda.device_count()
    one = options_of(device)
    with TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = prepared(Path(name))
        reference = pool.submit(train, folder, "reference", *options_of("cpu", "cpu"))
        waiting: dict[str, Callable[[], dict[str, list[float]]]] = {}
        if device != "cpu":
            waiting["one device"] = pool.submit(train, folder, "one", *one).result
        waiting["killed and resumed"] = pool.submit(resumed, folder, one).result
        for kind in (kind for kind in _SHARDING if (CONF / "trainer" / f"{kind}.yaml").exists()):
            for devices in sorted({1, count}):
                run = f"trainer={kind} trainer.devices={devices}"
                waiting[run] = pool.submit(train, folder, run.replace(" ", "_"), *options_of(device, kind, devices)).result
        for run, curves in waiting.items():
            yield checked(run, lambda curves=curves: difference(curves(), reference.result()))
