"""What makes a CPU fast: groups of similar length, dropout, and linear layers. Training applies a `Speed`."""

from dataclasses import dataclass

from simcse_pl.cpu.layers import use_fast_dropout
from simcse_pl.cpu.length_groups import TOKENS_PER_PASS, LengthGroups
from simcse_pl.utils.types import Backbone


@dataclass(frozen=True)
class Speed:
    """How training on a CPU computes the same loss. Nothing of it applies to other devices.

    The defaults were the fastest on 2 cores, in float32 and bfloat16 (`python -m benchmarks.train`). Nothing is
    measured at run time, so that the weights of a run follow from its options.

    Args:
        tokens_per_pass: the cost of one more pass through the backbone, in tokens. A batch is split into groups of
            similar length where this saves more padding (see `longest_of_groups`). Infinity pads the whole batch to
            its longest sequence.
        fast_dropout: whether to use the faster dropout of layers.py.
    """

    tokens_per_pass: float = TOKENS_PER_PASS
    fast_dropout: bool = True

    def apply(self, backbone: Backbone, groups: LengthGroups) -> None:
        """Train a backbone, whose batches are passed in `groups`, this way."""
        groups.tokens_per_pass = self.tokens_per_pass
        if self.fast_dropout:
            use_fast_dropout(backbone)
