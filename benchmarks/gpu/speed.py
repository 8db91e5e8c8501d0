"""Speed beside sentence-transformers and a plain loop, and where the time of a step goes."""

import logging
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch
import transformers
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import StepClock, in_turn, operations_of, timed, wait_for
from benchmarks.gpu.correctness import Record
from benchmarks.gpu.models import MAX_LENGTH, full_rows, mixed_texts, save_encoder
from benchmarks.train import plain_loop, sentence_transformers_trainer, simcse_pl, token_rows
from simcse_pl.models.tokenization import tokenize

_MATRIX_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "_addmm_activation")
_SHOWN = 12  # operators


class Bench:
    """An encoder of the size of BERT-base, saved in a folder, and the sizes of what is measured.

    Args:
        device: where it is measured.
        tiny: whether the encoder and all sizes are tiny, to try the code out.
        folder: an empty folder.
    """

    def __init__(self, device: str, tiny: bool, folder: str) -> None:
        for name in ("pytorch_lightning", "lightning.pytorch", "sentence_transformers"):
            logging.getLogger(name).setLevel(logging.ERROR)
        transformers.logging.set_verbosity_error()
        torch.set_float32_matmul_precision("high")  # as train.py
        torch.manual_seed(42)
        self.device, self.folder, self.encoder = device, folder, save_encoder(Path(folder), tiny)
        self.batch_sizes = (4,) if tiny else (64, 512)
        self.steps, self.warm_up, self.rounds = (2, 1, 1) if tiny else (20, 5, 3)
        self.texts, self.matrix, self.seconds = (16, 256, 0.1) if tiny else (8192, 8192, 1.0)

    def train(self, way: Callable[[StepClock], None], memory: list[int]) -> float:
        """Train once, add the peak memory in bytes to a list, and return the seconds of the timed steps."""
        clock = StepClock(self.steps, self.device, self.warm_up)
        way(clock)
        memory.append(clock.memory)
        return clock.seconds

    def operations(self, batch_size: int, views: int) -> float:
        """Return the operations of the timed steps: backward takes twice those of forward."""
        return 3 * self.steps * operations_of(self.encoder.backbone.config, [MAX_LENGTH] * batch_size * views)

    def compare(self, batch_size: int, views: int, modes: Mapping[str, Any], others: bool, rounds: int) -> Record:
        """Train in several ways in turn, in bf16, and return the seconds and the peak memory of each.

        Args:
            batch_size: rows of a batch.
            views: sentences of a row, each of MAX_LENGTH tokens.
            modes: the values of `module.compile`, by the name of the way.
            others: train by sentence-transformers and a plain loop, too.
            rounds: how often each way trains.
        """
        rows = full_rows(batch_size * (self.warm_up + self.steps), views)
        tokens, given = (
            token_rows(self.encoder, rows, MAX_LENGTH),
            Namespace(batch_size=batch_size, max_length=MAX_LENGTH),
        )
        ways: dict[str, Callable[[StepClock], None]] = {}
        if others and find_spec("datasets") and find_spec("sentence_transformers"):
            theirs = partial(sentence_transformers_trainer, rows, given, model=self.folder, bf16=True)
            ways["sentence-transformers trainer"] = theirs
        if others:
            ways["plain loop"] = partial(plain_loop, tokens, given, encoder=self.encoder, bf16=True)
        ours = partial(simcse_pl, tokens, given, encoder=self.encoder, precision="bf16-mixed")
        ways |= {name: partial(ours, compile=mode) for name, mode in modes.items()}
        memory: dict[str, list[int]] = {name: [] for name in ways}
        turns = {name: partial(self.train, way, memory[name]) for name, way in ways.items()}
        return {
            "case": f"{batch_size} rows of {views} sentences",
            "rows": self.steps * batch_size,
            "operations": self.operations(batch_size, views),
            "seconds": in_turn(turns, rounds, warm_up=False),
            "memory": {name: max(own) for name, own in memory.items()},
        }


def matrix_rate(size: int, device: str, dtype: torch.dtype, seconds: float) -> float:
    """Return the highest rate of products of square matrices, in operations per second, measured for some seconds.

    A float32 product is in TF32 on GPUs that have it.
    """
    first, second = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best, end = 0.0, time.perf_counter() + seconds

    def products() -> None:
        for _ in range(10):
            first @ second
        wait_for(device)

    products()
    while not best or time.perf_counter() < end:
        best = max(best, 10 * 2 * size**3 / timed(products))
    return best


def training(device: str, tiny: bool) -> Iterator[Record]:
    """Measure the rate of matrix products, and training on pairs and triplets."""
    with TemporaryDirectory() as folder:
        bench = Bench(device, tiny, folder)
        kinds = ("bfloat16", "float32")
        rates = {kind: matrix_rate(bench.matrix, device, getattr(torch, kind), bench.seconds) for kind in kinds}
        yield {"case": f"matrices of {bench.matrix} x {bench.matrix}", "operations_per_second": rates}
        for batch_size in bench.batch_sizes:
            for views in (2, 3):
                yield bench.compare(batch_size, views, {"simcse_pl": False}, True, bench.rounds)


def compiled(device: str, tiny: bool) -> Iterator[Record]:
    """Measure training on pairs with torch.compile and with CUDA graphs, without the time to compile."""
    modes: dict[str, Any] = {"simcse_pl": False}
    if device != "cpu":  # slow to compile for a CPU
        modes |= {"module.compile=true": True, "module.compile=reduce-overhead": "reduce-overhead"}
    with TemporaryDirectory() as folder:
        bench = Bench(device, tiny, folder)
        for batch_size in bench.batch_sizes:
            yield bench.compare(batch_size, 2, modes, False, 1)


def encoding(device: str, tiny: bool) -> Iterator[Record]:
    """Measure encoding of texts of 1 to 8 sentences, each library with its defaults."""
    with TemporaryDirectory() as folder:
        bench = Bench(device, tiny, folder)
        texts, encoder = mixed_texts(bench.texts), bench.encoder.to(device)
        ways: dict[str, Callable[[], Any]] = {}
        if find_spec("sentence_transformers"):
            from sentence_transformers import SentenceTransformer

            full, half = (SentenceTransformer(folder, device=device) for _ in range(2))
            ways["sentence-transformers, float32"] = partial(full.encode, texts)
            ways["sentence-transformers, bf16"] = partial(half.bfloat16().encode, texts)
        ways |= {"simcse_pl, float32": partial(encoder.encode, texts)}
        ways |= {"simcse_pl, bf16": partial(encoder.encode, texts, bf16=True)}  # vectors are on the CPU at the end
        seconds = in_turn({name: partial(timed, way) for name, way in ways.items()}, bench.rounds)
        lengths = [len(ids) for ids in tokenize(encoder.tokenizer, texts, encoder.max_length)]
        yield {
            "case": f"{len(texts)} texts of 1 to 8 sentences, {sum(lengths) / len(lengths):.0f} tokens on average",
            "rows": len(texts),
            "operations": operations_of(encoder.backbone.config, lengths),
            "seconds": seconds,
        }


class Profiled(pl.Callback):
    """Profile a number of steps, beginning with step `first`."""

    def __init__(self, device: str, first: int, steps: int) -> None:
        self.device, self.first, self.last = device, first, first + steps
        activities = [ProfilerActivity.CPU, *([] if device == "cpu" else [ProfilerActivity.CUDA])]
        self.profile = profile(activities=activities)

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Start before the first of the steps, and end after the last."""
        if trainer.global_step in (self.first, self.last):
            wait_for(self.device)
            (self.profile.start if trainer.global_step == self.first else self.profile.stop)()


def shares(profiled: Any, seconds: float, device: str) -> Record:
    """Return which operators the device is busy with, as shares of its busy time, and the share in which it is idle.

    Args:
        profiled: a profile of some steps.
        seconds: the seconds that as many steps take without the profiler, which slows the host down.
        device: whose time it is.
    """
    time_of = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
    averages = profiled.key_averages()
    operators = {own.key: getattr(own, time_of) / 1e6 for own in averages if own.key.startswith("aten::")}
    kernels = [own for own in averages if own.device_type != DeviceType.CPU and not own.is_user_annotation]
    busy = sum(getattr(own, time_of) for own in kernels) / 1e6 if kernels else sum(operators.values())
    of_busy = {name: own / busy for name, own in sorted(operators.items(), key=lambda own: -own[1]) if own}
    return {
        "idle": max(0.0, 1 - busy / seconds),
        "matrix_products": sum(own for name, own in of_busy.items() if name.split("::")[1] in _MATRIX_PRODUCTS),
        "attention": sum(own for name, own in of_busy.items() if "attention" in name),
        "operators": dict(list(of_busy.items())[:_SHOWN]),
    }


def profiles(device: str, tiny: bool) -> Iterator[Record]:
    """Profile training of simcse_pl on pairs, after steps without the profiler."""
    with TemporaryDirectory() as folder:
        bench = Bench(device, tiny, folder)
        for batch_size in bench.batch_sizes:
            clock = StepClock(bench.steps, device, bench.warm_up)
            rows = full_rows(batch_size * (clock.batches + bench.steps + 1), 2)
            profiled = Profiled(device, clock.batches, bench.steps)
            given = Namespace(batch_size=batch_size, max_length=MAX_LENGTH)
            tokens = token_rows(bench.encoder, rows, MAX_LENGTH)
            simcse_pl(tokens, given, clock, bench.encoder, precision="bf16-mixed", callbacks=[profiled])
            yield {"case": f"{batch_size} rows of 2 sentences", **shares(profiled.profile, clock.seconds, device)}
