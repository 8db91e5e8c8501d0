"""AdamW with a learning rate that falls linearly to 0, as in the paper (Appendix A)."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch.nn import Parameter
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_linear_schedule_with_warmup

from simcse_pl.utils.validation import check_non_negative, check_positive


@dataclass(frozen=True)
class LinearAdamW:
    """Settings of AdamW and its schedule.

    Args:
        lr: the highest learning rate.
        weight_decay: decoupled weight decay of all weights.
        warmup_steps: steps over which the learning rate rises from 0 to `lr`.
    """

    lr: float = 5e-5
    weight_decay: float = 0.0
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        check_positive("optimizer.lr", self.lr)
        check_non_negative("optimizer.weight_decay", self.weight_decay)
        check_non_negative("optimizer.warmup_steps", self.warmup_steps)

    def build(self, parameters: Iterable[Parameter], total_steps: int, fused: bool = True) -> tuple[AdamW, LambdaLR]:
        """Return the optimizer, fused into one kernel if asked to, and its schedule."""
        optimizer = AdamW(parameters, lr=self.lr, weight_decay=self.weight_decay, fused=fused)
        return optimizer, get_linear_schedule_with_warmup(optimizer, self.warmup_steps, total_steps)
