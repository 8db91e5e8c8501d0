"""Time and memory of the MLM head in a training step: scores at masked positions only, and at every position.

    python -m benchmarks.masked_head

Forward and backward of BERT's head with random weights and the masked-language-modelling loss, from the same hidden
states. The backbone, which is the same for both, is not included. Memory is the peak allocation beyond what was
allocated before the step, gradients included.
"""

from collections.abc import Callable
from functools import partial
from statistics import median

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BertConfig, BertModel

from benchmarks.common import AllocatorRecord, parser
from benchmarks.comparison import in_turn, save, timed
from simcse_pl.losses.mlm import NOT_CHOSEN
from simcse_pl.losses.mlm_head import MLMHead
from simcse_pl.utils.tables import Table


def masked_positions(head: MLMHead, hidden_states: Tensor, labels: Tensor) -> Tensor:
    """Score masked positions only, like simcse_pl."""
    chosen = labels != NOT_CHOSEN
    return F.cross_entropy(head(hidden_states[chosen]), labels[chosen])


def every_position(head: MLMHead, hidden_states: Tensor, labels: Tensor) -> Tensor:
    """Score every position, like transformers and the released code; the loss ignores those without a label."""
    return F.cross_entropy(head(hidden_states), labels, ignore_index=NOT_CHOSEN)


def peak_memory(step: Callable[[], object]) -> int:
    """Return the peak bytes that a step allocates, from the records of the allocator."""
    record = AllocatorRecord()
    record.start()
    step()
    return record.peak()


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__)
    command_line.add_argument("--vocabulary", type=int, default=30522)
    command_line.add_argument("--dim", type=int, default=768)
    command_line.add_argument("--positions", type=int, default=2048, help="tokens in the batch")
    arguments = command_line.parse_args()

    torch.manual_seed(42)
    config = BertConfig(vocab_size=arguments.vocabulary, hidden_size=arguments.dim, num_hidden_layers=1)
    head = MLMHead(BertModel(config, add_pooling_layer=False), pretrained=False)
    hidden_states = torch.randn(arguments.positions, arguments.dim, requires_grad=True)
    labels = torch.randint(arguments.vocabulary, (arguments.positions,))
    labels[torch.rand(arguments.positions) >= 0.15] = NOT_CHOSEN
    weights = [hidden_states, *head.parameters()]

    def step(way: Callable[[MLMHead, Tensor, Tensor], Tensor]) -> float:
        loss = way(head, hidden_states, labels)
        torch.autograd.grad(loss, weights)
        return loss.item()

    steps = {"masked": partial(step, masked_positions), "every": partial(step, every_position)}
    seconds = in_turn({name: partial(timed, own) for name, own in steps.items()}, arguments.rounds)
    columns = {
        "positions scored": [*steps],
        "ms per step": [1e3 * median(own) for own in seconds.values()],
        "peak memory, MB": [peak_memory(own) / 1e6 for own in steps.values()],
        "loss": [own() for own in steps.values()],
    }
    decimals = {"ms per step": 0, "peak memory, MB": 0, "loss": 5}
    note = f"{(labels != NOT_CHOSEN).sum()} of {len(labels)} positions are masked; {torch.get_num_threads()} threads"
    save(arguments.out, Table("masked_head", "Scores of the vocabulary", pd.DataFrame(columns), decimals, [note]))


if __name__ == "__main__":
    main()
