"""The settings and parts that an encoder adds to a backbone and a tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError

SETTINGS_FILE = "simcse.json"


@dataclass(frozen=True)
class EncoderSettings:
    """The arguments of SentenceEncoder that are saved with it. A plain checkpoint has none of them."""

    pooling: str | None = None
    head: str = "none"
    max_length: int | None = None
    normalize: bool = False
    template: str | list[str] | None = None
    template_bias: str = "none"
    final_period: bool = False
    truncate_dim: int | None = None


@dataclass(frozen=True)
class EncoderSpec:
    """The parts of an encoder that its backbone and tokenizer do not contain.

    Args:
        settings: the encoder's settings.
        head_weights: the state dict of its projection head; empty without a head.
        postprocess: its post-processing.
        subfolder: the folder within the source that contains the backbone and the tokenizer.
        num_layers, bidirectional: how the base model of an adapter was changed; None without an adapter.
    """

    settings: EncoderSettings = field(default_factory=EncoderSettings)
    head_weights: Mapping[str, Tensor] = field(default_factory=dict)
    postprocess: PostProcess | None = None
    subfolder: str = ""
    num_layers: int | None = None
    bidirectional: bool | None = None


def parse_settings(value: Any, where: str) -> EncoderSettings:
    """Return EncoderSettings from a dict of their values. Files of older versions lack those after max_length.

    Raises:
        UserError: pooling, head or max_length is missing, or a value has another type.
    """
    newer = {"normalize": False, "template": None, "template_bias": "none", "final_period": False, "truncate_dim": None}
    match newer | value if isinstance(value, dict) else None:
        case {
            "pooling": str(pooling),
            "head": str(head),
            "max_length": int(length),
            "normalize": bool(normalize),
            "template": None | str() | [*_] as template,
            "template_bias": str(bias),
            "final_period": bool(period),
            "truncate_dim": None | int() as dim,
        }:
            return EncoderSettings(pooling, head, length, normalize, template, bias, period, dim)
    raise UserError(f"{where} is damaged: it must have pooling, head and max_length, and values of the right types")
