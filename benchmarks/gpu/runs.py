"""Runs of train.py on one device, on all devices, and killed and resumed: their curves against those of the CPU."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch

from benchmarks.common import mixed_texts, operations_of
from benchmarks.gpu.correctness import ROWS, Record, checked, prepare
from benchmarks.models import save_encoder
from simcse_pl.models.tokenization import tokenize
from simcse_pl.run_folder import CURVES_FILE
from simcse_pl.utils.errors import UserError

_STEPS, _CHECKPOINT_EVERY, _KILLED_AFTER = 8, 4, 6
_TOLERANCE = 1e-2  # of the relative error of a curve, which grows with the steps
_CURVES, _SPEED = ("train/loss", "train/grad_norm"), "speed/sentences_per_second"
_CLONE = Path(__file__).parents[2]


class KillAfter(pl.Callback):
    """Kill the process after some steps, as the system does when memory runs out."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Kill the process."""
        if trainer.global_step == self.steps:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, run: str, *options: str, status: int = 0) -> dict[str, list[float]]:
    """Run train.py in float32 without dropout on files of a folder (see `prepare`), and return the curves of the run.

    If it is expected to end with a status other than 0, it has none.
    """
    given = ["setting=unsupervised", "data=text", "model=bert", f"model.name={folder}", "model.head=mlp", "logger=csv"]
    given += [f"data.train={folder}/sentences.txt", f"data.validation={folder}/pairs.tsv", f"data.batch_size={ROWS}"]
    given += [f"trainer.max_steps={_STEPS}", f"val_every={_CHECKPOINT_EVERY}", "log_every=1"]
    given += [f"hydra.run.dir={folder}/{run}"]
    given += ["trainer.precision=32-true", "model.dropout=0", "model.attention_dropout=0"]
    environment = os.environ | {"NVIDIA_TF32_OVERRIDE": "0", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "ignore", "train.py", *given, *options]
    done = subprocess.run(command, cwd=_CLONE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != status:
        raise UserError(f"status {done.returncode}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    if status:
        return {}
    with open(folder / run / CURVES_FILE, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row[_CURVES[0]]]
    return {name: [float(row[name]) for row in rows] for name in (*_CURVES, _SPEED)}


def resumed(folder: Path, *options: str) -> dict[str, list[float]]:
    """Return the curves of a run that is killed after a checkpoint, and resumed."""
    kill = [f"+callbacks.kill._target_={__name__}.KillAfter", f"+callbacks.kill.steps={_KILLED_AFTER}"]
    train(folder, "resumed", *options, *kill, status=-signal.SIGKILL)
    return train(folder, "resumed", *options, "resume=auto")


def difference(run: Future[dict[str, list[float]]], expected: Future[dict[str, list[float]]]) -> Record:
    """Return the largest relative error of each curve of a run."""
    pairs = [zip(run.result()[name], expected.result()[name], strict=True) for name in _CURVES]
    errors = [max(abs(own / other - 1) for own, other in pair) for pair in pairs]
    return {"errors": {"float32": errors}, "passed": max(errors) <= _TOLERANCE}


def runs(device: str, tiny: bool) -> Iterator[Record]:
    """Compare runs on one device and on all with that on the CPU; CUDA graphs and a resumed run with one device."""
    accelerator, count = ("cpu", 2) if device == "cpu" else ("gpu", torch.cuda.device_count())
    with TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(name)
        prepare(folder)
        reference = pool.submit(train, folder, "reference", "trainer=cpu")
        one = reference if device == "cpu" else pool.submit(train, folder, "one", "trainer=gpu")
        captured = ("graphs", "trainer=gpu", "module.cuda_graph=true")
        graphs = one if device == "cpu" else pool.submit(train, folder, *captured)
        again = pool.submit(resumed, folder, f"trainer={accelerator}")
        several = {}
        for kind, devices in product(("ddp", "fsdp"), {count} if tiny else sorted({1, count})):
            options = [f"trainer={kind}", f"trainer.devices={devices}"]
            accelerated = [*options, f"trainer.accelerator={accelerator}"]
            several[" ".join(options)] = pool.submit(train, folder, f"{kind}-{devices}", *accelerated)
        yield checked("one device", difference, one, reference)
        yield checked("module.cuda_graph=true", difference, graphs, one)
        yield checked("killed and resumed", difference, again, one)
        for run, curves in several.items():
            yield checked(run, difference, curves, reference)


def whole(device: str, tiny: bool) -> Iterator[Record]:
    """Measure whole runs of train.py on pairs of an encoder of the size of BERT-base, from its curve of the speed."""
    batch_size, steps = (4, 4) if tiny else (64, 200)
    options = [f"data.batch_size={batch_size}", f"trainer.max_steps={steps}", f"val_every={steps}", "log_every=2"]
    options += ["trainer.precision=bf16-mixed", "model.dropout=0.1", "model.attention_dropout=0.1"]
    options += [f"trainer={'cpu' if device == 'cpu' else 'gpu'}", "data.num_workers=2"]
    parts = {"train.py": []} | ({} if device == "cpu" else {"cuda_graph": ["module.cuda_graph=true"]})
    with TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        encoder = save_encoder(folder / "base", tiny)
        texts = mixed_texts(batch_size * steps, most=2)
        (folder / "many.txt").write_text("\n".join(texts), encoding="utf-8")
        options += [f"model.name={folder / 'base'}", f"data.train={folder / 'many.txt'}", "data.max_length=32"]
        lengths = [len(ids) for ids in tokenize(encoder.tokenizer, texts, 32) * 2]
        seconds = {}
        for way, own in parts.items():
            speeds = train(folder, way, *options, *own)[_SPEED]
            seconds[way] = [2 * len(texts) / median(speeds[len(speeds) // 2 :])]
        operations = 3 * operations_of(encoder.backbone.config, lengths)  # backward: twice
        case = f"{steps} steps of {batch_size} rows"
        yield {"case": case, "rows": len(texts), "operations": operations, "seconds": seconds}
