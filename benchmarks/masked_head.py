"""The vocabulary's scores at masked positions alone, and at every position: time and memory of a training step's head.

    python -m benchmarks.masked_head

Forward and backward of BERT's head, with fresh weights, and the masked-language-modelling loss, from the same hidden
states; the backbone, which both ways need, is left out. Memory is the most that is allocated at once beyond what was
there before the step, gradients included.
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from statistics import median

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import BertConfig, BertModel

from benchmarks.comparison import Way, in_turn, timed
from simcse_pl.losses.mlm import NOT_CHOSEN
from simcse_pl.losses.mlm_head import MLMHead


def masked_positions(head: MLMHead, hidden_states: Tensor, labels: Tensor) -> Tensor:
    """Our way: what is not predicted is not scored."""
    chosen = labels != NOT_CHOSEN
    return F.cross_entropy(head(hidden_states[chosen]), labels[chosen])


def every_position(head: MLMHead, hidden_states: Tensor, labels: Tensor) -> Tensor:
    """The way of transformers and of the released code: cross-entropy leaves out what has no label."""
    return F.cross_entropy(head(hidden_states), labels, ignore_index=NOT_CHOSEN)


def most_memory(step: Callable[[], object]) -> int:
    """Bytes, by the allocator's own record."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # no word from the profiler
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    most: int = max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))
    return most


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=30522, help="tokens in it")
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32, help="of each sentence")
    parser.add_argument("--repeats", type=int, default=5, help="steps that are timed")
    arguments = parser.parse_args()

    torch.manual_seed(42)
    config = BertConfig(vocab_size=arguments.vocabulary, hidden_size=arguments.dim, num_hidden_layers=1)
    head = MLMHead(BertModel(config, add_pooling_layer=False), pretrained=False)
    positions = arguments.sentences * arguments.tokens
    hidden_states = torch.randn(positions, arguments.dim, requires_grad=True)
    labels = torch.randint(arguments.vocabulary, (positions,))
    labels[torch.rand(positions) >= 0.15] = NOT_CHOSEN

    weights = [hidden_states, *head.parameters()]

    def step(way: Callable[[MLMHead, Tensor, Tensor], Tensor]) -> float:
        loss = way(head, hidden_states, labels)
        torch.autograd.grad(loss, weights)
        return loss.item()

    steps = [partial(step, way) for way in (masked_positions, every_position)]
    losses = [step() for step in steps]  # the first time, which is not measured
    memory = [most_memory(step) for step in steps]
    ways = [Way(name, partial(timed, own)) for name, own in zip(("masked", "every"), steps, strict=True)]
    times = [median(own) for own in in_turn(ways, arguments.repeats, warm_up=False).values()]
    numbers = (int((labels != NOT_CHOSEN).sum()), positions)

    faster, less = times[1] / times[0], memory[1] / memory[0]
    threads = torch.get_num_threads()
    table = Table(title=f"{faster:.1f} times faster, in {less:.1f} times less memory, {threads} threads")
    for column in ("positions scored", "number", "loss", "ms a step", "most memory, MB"):
        table.add_column(column, justify="right")
    for name, number, loss, took, used in zip(("masked", "every"), numbers, losses, times, memory, strict=True):
        table.add_row(name, f"{number}", f"{loss:.5f}", f"{1e3 * took:.0f}", f"{used / 1e6:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
