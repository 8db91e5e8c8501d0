"""Where the time of a training step on a CPU goes, with and without what simcse_pl does for speed.

    python -m benchmarks.profile_step

A step is that of `simcse train` on 64 sentences (`--sentences`) of the packaged Wikipedia sample and the packaged
encoder (6 layers): forward, backward, clipping and AdamW. torch's profiler measures the operations; what is left of the
step is Python and the dispatch of operations.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from unittest.mock import patch

import pandas as pd
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.common import PACKAGED, matrix_rates, parser, wikipedia_sentences
from benchmarks.comparison import save
from simcse_pl.cpu import Speed, layers
from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.optimizer import build_optimizer
from simcse_pl.utils.tables import Table

STEPS = 3
KINDS = {  # names of operations start with these
    "products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::"),
    "dropout": ("dropout", "aten::dropout", "aten::native_dropout"),
    "casts": ("aten::copy_", "aten::_to_copy", "aten::to", "aten::contiguous", "aten::clone"),
    "norms": ("aten::_softmax", "aten::native_layer_norm", "aten::gelu"),
    "optimizer": ("aten::_fused_adam", "Optimizer"),
}
REST, PYTHON = "other", "Python"


def kind_of(event: torch.autograd.profiler_util.FunctionEvent) -> str:
    """Return the kind of an operation: that of the dropout or the product that it is a part of, if any."""
    outer = event
    while outer is not None:
        for kind in ("dropout", "products"):
            if outer.name.startswith(KINDS[kind]):
                return kind
        outer = outer.cpu_parent
    found = [kind for kind, names in KINDS.items() if event.name.startswith(names)]
    return found[0] if found else REST


def make_step(bf16: bool, fast: bool, sentences: list[str]) -> Callable[[], None]:
    """Return a training step; `fast` with oneDNN, groups of similar length and the faster dropout."""
    known = nullcontext() if fast else patch.object(layers, "onednn_is_faster", lambda: False)
    with known:
        encoder = SentenceEncoder.from_pretrained(PACKAGED, pooling="cls", head="mlp_train_only", max_length=32)
    module = SimCSEModule(encoder, ContrastiveLoss(), partial(torch.optim.AdamW, lr=5e-5)).train()
    speed = Speed() if fast else Speed(float("inf"), fast_dropout=False)
    speed.apply(encoder.backbone, encoder.groups)
    optimizer = build_optimizer(module.optimizer, list(module.parameters()))
    batch = ViewCollator(encoder.tokenizer, 32)([(sentence,) for sentence in sentences])

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = module.loss(module.batch_of(batch))
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def seconds_by_kind(step: Callable[[], None]) -> Counter[str]:
    """Return the seconds of a step by kind, the mean over steps."""

    def recorded(function: Callable[..., torch.Tensor], *arguments: object) -> torch.Tensor:
        with record_function("dropout"):
            return function(*arguments)

    with patch.object(layers, "fast_dropout", partial(recorded, layers.fast_dropout)):
        step()
        step()
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            begin = time.perf_counter()
            for _ in range(STEPS):
                step()
            total = time.perf_counter() - begin
    found: Counter[str] = Counter()
    for event in profiled.events() or ():
        found[kind_of(event)] += event.self_cpu_time_total / 1e6
    found[PYTHON] = max(0.0, total - found.total())
    return Counter({kind: seconds / STEPS for kind, seconds in found.items()})


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    command_line.add_argument("--sentences", type=int, default=64, help="rows of a batch")
    given = command_line.parse_args()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences the profiler
    sentences = wikipedia_sentences(given.sentences)
    ways = {
        "float32, plain": (False, False),
        "float32": (False, True),
        "bf16, plain": (True, False),
        "bf16": (True, True),
    }
    found = {way: seconds_by_kind(make_step(*options, sentences)) for way, options in ways.items()}
    frame = pd.DataFrame(found).T.reindex(columns=[*KINDS, REST, PYTHON]).fillna(0.0)
    seconds = frame.sum(axis=1)
    shares = frame.mul(100 / seconds, axis=0).add_suffix(" %")
    rows = shares.assign(**{"s per step": seconds}).rename_axis("way").reset_index()
    rows = rows[["way", "s per step", *shares.columns]]
    config = SentenceEncoder.from_pretrained(PACKAGED).backbone.config
    about = "plain: one padded batch, torch's dropout and torch's linear layers; the others: the default"
    decimals = dict.fromkeys(shares.columns, 0) | {"s per step": 2}
    kinds = "products: matrix products; casts: also copies; norms: layer norm, softmax and GELU"
    notes = [about, kinds, matrix_rates(config)]
    save(given.out, Table("profile_step", "Time of a training step", rows, decimals, notes))


if __name__ == "__main__":
    main()
