"""Speed beside sentence-transformers and plain loops, part by part, and where the time of a step goes."""

import gc
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
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
# The parts of a step on a GPU, alone and together; a CPU has no graphs, and compiles for minutes.
_GRAPH, _BF16, _COMPILE = {"cuda_graph": True}, {"half_weights": True}, {"compile": True}
_PARTS: dict[str, dict[str, Any]] = {
    "half_weights": _BF16,
    "cuda_graph": _GRAPH,
    "cuda_graph half_weights": _GRAPH | _BF16,
}
_COMPILED = {
    "compile=reduce-overhead": {"compile": "reduce-overhead"},
    "cuda_graph compile": _GRAPH | _COMPILE,
    "cuda_graph compile half_weights": _GRAPH | _COMPILE | _BF16,
}
_SHOWN = 12  # operators of a profile


class Bench:
    """An encoder of the size of BERT-base, saved in a folder, and the sizes of what is measured, tiny on request."""

    def __init__(self, device: str, tiny: bool, folder: str) -> None:
        torch.set_float32_matmul_precision("high")  # as train.py
        torch.manual_seed(42)
        self.device, self.folder, self.encoder = device, folder, save_encoder(Path(folder), tiny)
        self.batch_sizes = (4,) if tiny else (64, 512)
        self.steps, self.warm_up, self.rounds = (2, 1, 1) if tiny else (20, 5, 2)
        self.texts, self.matrix = (16, 256) if tiny else (8192, 8192)

    def rows(self, batch_size: int, views: int, full: bool = True, further: int = 0) -> tuple[list[Row], list[Any]]:
        """Return rows for all steps, as text and as tokens; a sentence has MAX_LENGTH tokens, or up to as many."""
        count = batch_size * (self.warm_up + self.steps + further)
        text = full_rows(count, views, MAX_LENGTH)
        if not full:
            text = list(zip(*[iter(mixed_texts(count * views, most=2))] * views, strict=True))
        return text, token_rows(self.encoder, text, MAX_LENGTH)

    def compared(self, case: str, tokens: Sequence[Any], ways: Mapping[str, Way], rounds: int) -> Record:
        """Train on rows of tokens in several ways in turn, and return the seconds and the peak memory of each."""
        clocks: dict[str, list[StepClock]] = {name: [] for name in ways}

        def turn(name: str) -> float:
            gc.collect()  # trainers are in cycles of references, and would count as memory of the next one
            clocks[name].append(StepClock(self.steps, self.device, self.warm_up))
            ways[name](clocks[name][-1])
            return clocks[name][-1].seconds

        lengths = [len(ids) for row in tokens for ids in row]
        operations = operations_of(self.encoder.backbone.config, lengths) * self.steps / (self.warm_up + self.steps)
        return {
            "case": case,
            "rows": self.steps * len(tokens) // (self.warm_up + self.steps),
            "operations": 3 * operations,  # backward: twice
            "seconds": in_turn({name: partial(turn, name) for name in ways}, rounds, warm_up=False),
            "memory": {name: max(clock.memory for clock in own) for name, own in clocks.items()},
        }


def training(device: str, tiny: bool) -> Iterator[Record]:
    """Measure the rate of matrix products, and training on pairs and triplets in bf16."""
    with TemporaryDirectory() as folder:
        bench = Bench(device, tiny, folder)
        rates = {kind: matrix_rate(bench.matrix, device, getattr(torch, kind)) for kind in ("bfloat16", "float32")}
        yield {"case": f"matrices of {bench.matrix} x {bench.matrix}", "operations_per_second": rates}
        for batch_size, (views, full) in product(bench.batch_sizes, ((2, True), (3, True), (2, False))):
            if views == 3 and batch_size != bench.batch_sizes[-1]:
                continue
            rows, tokens = bench.rows(batch_size, views, full)
            options = Namespace(batch_size=batch_size, max_length=MAX_LENGTH)
            ways: dict[str, Way] = {}
            if find_spec("sentence_transformers") and find_spec("datasets"):  # its trainer needs both
                theirs = partial(sentence_transformers_trainer, rows, options, model=folder, bf16=True)
                ways["sentence-transformers trainer"] = theirs
            ways["plain loop"] = partial(plain_loop, tokens, options, encoder=bench.encoder, bf16=True)
            ours = partial(simcse_pl, tokens, options, encoder=bench.encoder, precision="bf16-mixed")
            ways["simcse_pl"] = ours
            parts = _PARTS if device != "cpu" else {"half_weights": _BF16}
            ways |= {name: partial(ours, **given) for name, given in parts.items()}
            case = f"{batch_size} rows of {views} sentences{'' if full else ' of up to 32 tokens'}"
            yield bench.compared(case, tokens, ways, bench.rounds)


def compiled(device: str, tiny: bool) -> Iterator[Record]:
    """Measure training on pairs with torch.compile and with CUDA graphs, without the time to compile and to capture."""
    modes = _COMPILED if device != "cpu" else {}
    with TemporaryDirectory() as folder:
        bench = Bench(device, tiny, folder)
        for batch_size in bench.batch_sizes:
            _, tokens = bench.rows(batch_size, 2)
            options = Namespace(batch_size=batch_size, max_length=MAX_LENGTH)
            plain = partial(plain_loop, tokens, options, encoder=bench.encoder, bf16=True)
            ours = partial(simcse_pl, tokens, options, encoder=bench.encoder, precision="bf16-mixed")
            ways: dict[str, Way] = {"plain loop": plain}
            if modes:
                ways["plain loop, compiled"] = partial(plain, compile=True)
            ways |= {name: partial(ours, **given) for name, given in modes.items()}
            yield bench.compared(f"{batch_size} rows of 2 sentences", tokens, ways, rounds=1)


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


def shares(profiled: Any, seconds: float, device: str, steps: int) -> dict[str, Any]:
    """Return which operators the device is busy with, as shares of its busy time, and the share in which it is idle.

    `seconds` are those that as many steps take without the profiler, which slows the host down. In a graph, kernels
    belong to no operator.
    """
    time_of = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
    averages = profiled.key_averages()
    operators = {own.key: getattr(own, time_of) / 1e6 for own in averages if own.key.startswith("aten::")}
    kernels = [own for own in averages if own.device_type != DeviceType.CPU and not own.is_user_annotation]
    busy = sum(getattr(own, time_of) for own in kernels) / 1e6 if kernels else sum(operators.values())
    of_busy = {name: own / busy for name, own in sorted(operators.items(), key=lambda own: -own[1]) if own}
    return {
        "idle": max(0.0, 1 - busy / seconds),
        "kernels": round(sum(own.count for own in kernels) / steps),
        "matrix_products": sum(own for name, own in of_busy.items() if name.split("::")[1] in _MATRIX_PRODUCTS),
        "attention": sum(own for name, own in of_busy.items() if "attention" in name),
        "operators": dict(list(of_busy.items())[:_SHOWN]),
    }


def profiles(device: str, tiny: bool) -> Iterator[Record]:
    """Profile training of simcse_pl on pairs, after steps without the profiler."""
    with TemporaryDirectory() as folder:
        bench = Bench(device, tiny, folder)
        ways: dict[str, dict[str, Any]] = {"simcse_pl": {}}
        if device != "cpu":
            ways["cuda_graph half_weights"] = _GRAPH | _BF16
        for batch_size, (name, parts) in product(bench.batch_sizes, ways.items()):
            clock = StepClock(bench.steps, device, bench.warm_up)
            _, tokens = bench.rows(batch_size, 2, further=bench.steps + 1)
            profiled = Profiled(device, clock.batches, bench.steps)
            given = {"precision": "bf16-mixed", "callbacks": [profiled], **parts}
            simcse_pl(tokens, Namespace(batch_size=batch_size, max_length=MAX_LENGTH), clock, bench.encoder, **given)
            found = shares(profiled.profile, clock.seconds, device, bench.steps)
            yield {"case": f"{batch_size} rows of 2 sentences, {name}", **found}
