"""What makes training fast on a CPU: groups of similar length, and dropout."""

import logging
import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from pytorch_lightning import Callback, LightningModule, Trainer

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.length_groups import TOKENS_PER_PASS, LengthGroups
from simcse_pl.module import SimCSEModule
from simcse_pl.speed.dropout import use_fast_dropout
from simcse_pl.utils.types import Backbone

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Speed:
    """How training on a CPU computes the same loss. Nothing of it applies to other devices.

    The defaults were the fastest on 2 cores, in float32 and bfloat16 (`python -m benchmarks.train`). Nothing is
    measured at run time, so that the weights of a run follow from its options.

    Args:
        tokens_per_pass: the cost of one more pass through the backbone, in tokens. A batch is split into groups of
            similar length where this saves more padding (see `longest_of_groups`). Infinity pads the whole batch to
            its longest sequence.
        fast_dropout: whether to use the faster dropout of dropout.py.
    """

    tokens_per_pass: Annotated[float, Field(ge=0, allow_inf_nan=True)] = TOKENS_PER_PASS
    fast_dropout: bool = True

    def apply(self, backbone: Backbone, groups: LengthGroups) -> None:
        """Train a backbone, whose batches are passed in `groups`, this way."""
        groups.tokens_per_pass = self.tokens_per_pass
        if self.fast_dropout:
            use_fast_dropout(backbone)


class CpuSpeed(Callback):
    """Train in the way that is fastest on a CPU; see `Speed`."""

    def __init__(self, speed: Speed) -> None:
        self.speed = speed
        self._chosen = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._chosen or trainer.strategy.root_device.type != "cpu":
            return
        self._chosen = True
        assert isinstance(pl_module, SimCSEModule)
        if pl_module.compiled:
            self.speed = Speed(tokens_per_pass=math.inf, fast_dropout=False)
        if trainer.is_global_zero:
            log.info("%-13s %s", "speed", ", ".join(f"{name}={value}" for name, value in vars(self.speed).items()))
        for encoder in [part for part in pl_module.modules() if isinstance(part, SentenceEncoder)]:
            self.speed.apply(encoder.backbone, encoder.groups)
