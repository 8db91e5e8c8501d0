"""The settings and parts that an encoder adds to a backbone and a tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import TypeAdapter
from torch import Tensor

from simcse_pl.models.heads import Head
from simcse_pl.models.templates import TemplateAsText, TemplateBias
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import reraise_as

SETTINGS_FILE = "simcse.json"


@dataclass(frozen=True)
class EncoderSettings:
    """The arguments of SentenceEncoder that are saved with it. A plain checkpoint has none of them."""

    pooling: str | None = None
    head: Head = "none"
    max_length: int | None = None
    normalize: bool = False
    template: str | list[str] | None = None
    template_bias: TemplateBias = "none"
    final_period: bool = False
    truncate_dim: int | None = None
    template_as_text: TemplateAsText = "never"
    prompts: dict[str, str] | None = None


SETTINGS = [field.name for field in fields(EncoderSettings)]


@dataclass(frozen=True)
class EncoderSpec:
    """The parts of an encoder that its backbone and tokenizer do not contain.

    Args:
        settings: the encoder's settings.
        head_weights, pooling_weights: the state dicts of its projection head and its pooling; None to draw them at
            random.
        postprocess: its post-processing.
        subfolder: the folder within the source that contains the backbone and the tokenizer.
        num_layers, bidirectional: how the base model of an adapter was changed; None without an adapter.
    """

    settings: EncoderSettings = field(default_factory=EncoderSettings)
    head_weights: Mapping[str, Tensor] | None = None
    pooling_weights: Mapping[str, Tensor] | None = None
    postprocess: PostProcess | None = None
    subfolder: str = ""
    num_layers: int | None = None
    bidirectional: bool | None = None


def parse_settings(value: Any, where: str) -> EncoderSettings:
    """Return EncoderSettings from a dict of their values, or raise UserError. Old files lack some of them."""
    with reraise_as(f"{where} is damaged"):
        return TypeAdapter(EncoderSettings).validate_python(value)
