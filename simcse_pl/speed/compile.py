"""Compile a backbone for training."""

from functools import wraps
from typing import Any

import torch

from simcse_pl.models.backbone import longest_input, packs_sequences
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import CompileMode


def pad_to_multiples(encoder: SentenceEncoder) -> None:
    """Pad batches to multiples of 8 tokens, unless the longest input is none.

    There are fewer shapes then, and matrix units of GPUs prefer them.
    """
    if (longest_input(encoder.backbone) or 0) % 8 == 0:
        encoder.templates.multiple_of = 8


def compile_backbone(encoder: SentenceEncoder, mode: bool | CompileMode, in_chunks: bool) -> None:
    """Compile a backbone with torch.compile, once for all shapes, in the default mode (true) or another one.

    From then on, batches are padded to a multiple of 8 tokens. In evaluation mode, the backbone is not compiled:
    CUDA graphs of the many shapes of an evaluation would take more time than they save.

    Raises:
        UserError: CUDA graphs of an unpadded backbone, whose batches each have their own number of tokens, or of
            chunks, whose second forward pass overwrites what the first one returned.
    """
    if mode == "reduce-overhead" and (in_chunks or packs_sequences(encoder.backbone)):
        why = "CUDA graphs cannot compute chunks again" if in_chunks else "unpadded batches have no common shapes"
        raise UserError(f"module.compile=reduce-overhead: {why}; set it to true")
    pad_to_multiples(encoder)
    backbone, not_compiled = encoder.backbone, encoder.backbone.forward
    compiled = torch.compile(not_compiled, dynamic=True, mode=mode if isinstance(mode, str) else None)

    @wraps(not_compiled)
    def forward(*inputs: Any, **options: Any) -> Any:
        return (compiled if backbone.training else not_compiled)(*inputs, **options)

    backbone.forward = forward
