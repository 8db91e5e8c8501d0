"""Speed beside sentence-transformers and a plain loop, and where the time of a step goes."""

import gc
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import StepClock, full_rows, in_turn, matrix_rate, mixed_texts, operations_of, timed, wait_for
from benchmarks.gpu.correctness import Record
from benchmarks.models import save_encoder
from benchmarks.train import plain_loop, sentence_transformers_trainer, simcse_pl, token_rows
from simcse_pl.data.rows import Row
from simcse_pl.models.tokenization import tokenize

Way = Callable[[StepClock], None]
MAX_LENGTH = 32  # tokens per sentence in training
_MATRIX_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "_addmm_activation")
_COMPILED = {"true": True, "reduce-overhead": "reduce-overhead"}
_SHOWN = 12  # operators of a profile


class Bench:
    """An encoder of the size of BERT-base, saved in a folder, and the sizes of what is measured, tiny on request."""

    def __init__(self, device: str, tiny: bool, folder: str) -> None:
        torch.set_float32_matmul_precision("high")  # as train.py
        torch.manual_seed(42)
        self.device, self.folder, self.encoder = device, folder, save_encoder(Path(folder), tiny)
        self.batch_sizes = (4,) if tiny else (64, 512)
        self.steps, self.warm_up, self.rounds = (2, 1, 1) if tiny else (20, 5, 3)
        self.texts, self.matrix = (16, 256) if tiny else (8192, 8192)

    def rows(self, batch_size: int, views: int, further: int = 0) -> tuple[list[Row], list[Any], Namespace]:
        """Return rows of MAX_LENGTH tokens per sentence for all steps, as text and as tokens, and the options."""
        text = full_rows(batch_size * (self.warm_up + self.steps + further), views, MAX_LENGTH)
        options = Namespace(batch_size=batch_size, max_length=MAX_LENGTH)
        return text, token_rows(self.encoder, text, MAX_LENGTH), options

    def compared(self, batch_size: int, views: int, ways: Mapping[str, Way], rounds: int) -> Record:
        """Train in several ways in turn, and return the seconds and the peak memory of each."""
        clocks: dict[str, list[StepClock]] = {name: [] for name in ways}

        def turn(name: str) -> float:
            gc.collect()  # trainers are in cycles of references, and would count as memory of the next one
            clocks[name].append(StepClock(self.steps, self.device, self.warm_up))
            ways[name](clocks[name][-1])
            return clocks[name][-1].seconds

        lengths = [MAX_LENGTH] * batch_size * views
        return {
            "case": f"{batch_size} rows of {views} sentences",
            "rows": self.steps * batch_size,
            "operations": 3 * self.steps * operations_of(self.encoder.backbone.config, lengths),  # backward: twice
            "seconds": in_turn({name: partial(turn, name) for name in ways}, rounds, warm_up=False),
            "memory": {name: max(clock.memory for clock in own) for name, own in clocks.items()},
        }


def training(device: str, tiny: bool) -> Iterator[Record]:
    """Measure the rate of matrix products, and training on pairs and triplets in bf16."""
    with TemporaryDirectory() as folder:
        bench = Bench(device, tiny, folder)
        rates = {kind: matrix_rate(bench.matrix, device, getattr(torch, kind)) for kind in ("bfloat16", "float32")}
        yield {"case": f"matrices of {bench.matrix} x {bench.matrix}", "operations_per_second": rates}
        for batch_size, views in product(bench.batch_sizes, (2, 3)):
            rows, tokens, options = bench.rows(batch_size, views)
            ways: dict[str, Way] = {}
            if find_spec("sentence_transformers") and find_spec("datasets"):  # its trainer needs both
                theirs = partial(sentence_transformers_trainer, rows, options, model=folder, bf16=True)
                ways["sentence-transformers trainer"] = theirs
            ways["plain loop"] = partial(plain_loop, tokens, options, encoder=bench.encoder, bf16=True)
            ways["simcse_pl"] = partial(simcse_pl, tokens, options, encoder=bench.encoder, precision="bf16-mixed")
            yield bench.compared(batch_size, views, ways, bench.rounds)


def compiled(device: str, tiny: bool) -> Iterator[Record]:
    """Measure training on pairs with torch.compile and with CUDA graphs, without the time to compile and to capture."""
    modes: dict[str, dict[str, Any]] = {}
    if device != "cpu":  # compilation takes minutes on a CPU
        modes = {f"module.compile={name}": {"compile": mode} for name, mode in _COMPILED.items()}
        modes["module.cuda_graph=true"] = {"cuda_graph": True}
        modes["module.cuda_graph=true module.compile=true"] = {"cuda_graph": True, "compile": True}
    with TemporaryDirectory() as folder:
        bench = Bench(device, tiny, folder)
        for batch_size in bench.batch_sizes:
            _, tokens, options = bench.rows(batch_size, 2)
            ours = partial(simcse_pl, tokens, options, encoder=bench.encoder, precision="bf16-mixed")
            ways: dict[str, Way] = {"simcse_pl": ours}
            ways |= {name: partial(ours, **options) for name, options in modes.items()}
            yield bench.compared(batch_size, 2, ways, rounds=1)


def encoding(device: str, tiny: bool) -> Iterator[Record]:
    """Measure encoding of texts of 1 to 8 sentences, each library with its defaults."""
    with TemporaryDirectory() as folder:
        bench = Bench(device, tiny, folder)
        texts, encoder = mixed_texts(bench.texts), bench.encoder.to(device)
        halves = {"simcse_pl, bf16": partial(encoder.encode, bf16=True)}
        ways: dict[str, Callable[[list[str]], Any]] = {"simcse_pl, float32": encoder.encode, **halves}
        if find_spec("sentence_transformers"):
            from sentence_transformers import SentenceTransformer

            full, half = (SentenceTransformer(folder, device=device) for _ in range(2))
            theirs = {"float32": full.encode, "bf16": half.bfloat16().encode}
            ways = {f"sentence-transformers, {name}": way for name, way in theirs.items()} | ways
        seconds = in_turn({name: partial(timed, partial(way, texts)) for name, way in ways.items()}, bench.rounds)
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


def shares(profiled: Any, seconds: float, device: str) -> dict[str, Any]:
    """Return which operators the device is busy with, as shares of its busy time, and the share in which it is idle.

    `seconds` are those that as many steps take without the profiler, which slows the host down.
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
            _, tokens, options = bench.rows(batch_size, 2, further=bench.steps + 1)
            profiled = Profiled(device, clock.batches, bench.steps)
            simcse_pl(tokens, options, clock, bench.encoder, precision="bf16-mixed", callbacks=[profiled])
            yield {"case": f"{batch_size} rows of 2 sentences", **shares(profiled.profile, clock.seconds, device)}
