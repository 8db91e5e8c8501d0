"""What is fastest on this CPU: the groups that a batch is split into, and the implementation of dropout."""

import copy
import hashlib
import json
import math
import platform
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from filelock import FileLock
from torch import nn

from simcse_pl.cpu.layers import onednn_is_faster, use_fast_dropout, use_onednn_linear
from simcse_pl.cpu.length_groups import TOKENS_PER_PASS, LengthGroups
from simcse_pl.utils import hub
from simcse_pl.utils.files import cache_folder, read_json, write_text
from simcse_pl.utils.types import Backbone

_TOKENS = 64, 512  # of the two passes that are timed
_LENGTH = 32  # tokens of a sequence
_REPEATS = 9  # the first one warms up
_LOWEST, _HIGHEST = 64, 4096  # tokens per pass; above, a batch of sentences is never worth splitting


@dataclass(frozen=True)
class Speed:
    """How training on a CPU computes the same loss. Nothing of it applies to other devices.

    Args:
        tokens_per_pass: the cost of one more pass through the backbone, in tokens. A batch is split into groups of
            similar length where this saves more padding (see `longest_of_groups`). Infinity pads the whole batch to
            its longest sequence. None measures the cost.
        fast_dropout: whether to use the faster dropout of layers.py. None measures whether it is faster.
    """

    tokens_per_pass: float | None = TOKENS_PER_PASS
    fast_dropout: bool | None = True

    def __str__(self) -> str:
        """Describe the choice in a line."""
        cost = self.tokens_per_pass
        groups = "one padded batch" if cost == math.inf else f"groups of similar length, a pass costs {cost} tokens"
        return f"{groups}; {'fast' if self.fast_dropout else 'torch'} dropout"

    def measured(self, backbone: Backbone, bf16: bool) -> "Speed":
        """Return a copy in which the fields that are None are measured.

        One layer of the backbone's size, with random weights, is timed forward and backward. This takes about a
        second, once per machine, number of threads, model and precision: the result is kept in the cache folder.
        The global random state does not change.

        Args:
            backbone: the model to be trained, on the CPU.
            bf16: whether training uses autocast to bfloat16.
        """
        if None not in (self.tokens_per_pass, self.fast_dropout):
            return self
        file = cache_folder() / "speed" / f"{_key(backbone, bf16)}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{file}.lock"):  # two runs that measure at once would slow each other down
            if not file.is_file():
                write_text(file, json.dumps(asdict(_measure(backbone, bf16))))
            measured = Speed(**read_json(file))
        return replace(measured, **{name: value for name, value in asdict(self).items() if value is not None})

    def apply(self, backbone: Backbone, groups: LengthGroups) -> None:
        """Train a backbone, whose batches are passed in `groups`, this way. The fields must not be None."""
        assert self.tokens_per_pass is not None
        groups.tokens_per_pass = self.tokens_per_pass
        if self.fast_dropout:
            use_fast_dropout(backbone)


def _key(backbone: Backbone, bf16: bool) -> str:
    """Return a hash of what determines the measurement: CPU, threads, torch, architecture and precision."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    cpu = next((line for line in lines if line.startswith("model name")), platform.processor())
    machine = [cpu, torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), torch.__version__]
    machine.append(onednn_is_faster())
    config = {name: value for name, value in backbone.config.to_dict().items() if not name.startswith("_")}
    text = json.dumps([machine, config, bf16], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _measure(backbone: Backbone, bf16: bool) -> Speed:
    with torch.random.fork_rng(devices=[]):
        layers = [_random_layer(backbone).train() for _ in range(2)]
        for layer in layers:
            use_onednn_linear(layer)
        use_fast_dropout(layers[1])
        every = [(fast, tokens) for fast in (False, True) for tokens in _TOKENS]
        seconds = dict.fromkeys(every, math.inf)
        for repeat in range(_REPEATS):
            for fast, tokens in every:
                taken = _seconds(layers[fast], tokens, bf16)
                if repeat:
                    seconds[fast, tokens] = min(taken, seconds[fast, tokens])
    fast = seconds[True, _TOKENS[1]] <= seconds[False, _TOKENS[1]]
    few, many = (seconds[fast, tokens] for tokens in _TOKENS)
    per_token = max(many - few, 1e-9) / (_TOKENS[1] - _TOKENS[0])
    cost = max(_LOWEST, few / per_token - _TOKENS[0])
    rounded = 2 ** round(math.log2(cost))
    return Speed(rounded if rounded <= _HIGHEST else math.inf, fast)


def _random_layer(backbone: Backbone) -> Backbone:
    """Return a backbone of the same width with one layer, random weights, and a vocabulary of two words."""
    from transformers import AutoModel  # slow

    config = copy.deepcopy(backbone.config)
    config.num_hidden_layers, config.vocab_size, config.pad_token_id = 1, 2, 0  # MPNet always pads with 1
    if getattr(config, "layer_types", None):  # ModernBERT, Gemma
        config.layer_types = config.layer_types[:1]
    with hub.quiet("transformers"):  # special tokens are not in the vocabulary
        layer: Backbone = AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
    if getattr(layer, "pooler", None) is not None:
        layer.pooler = nn.Identity()
    return layer


def _seconds(layer: nn.Module, tokens: int, bf16: bool) -> float:
    """Return the seconds of a pass through a layer, forward and backward."""
    ids = torch.zeros(tokens // _LENGTH, _LENGTH, dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[0, -1] = 0  # without padding, some masks are left out
    begin = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        states = layer(input_ids=ids, attention_mask=mask)[0]
    states.float().sum().backward()
    return time.perf_counter() - begin
