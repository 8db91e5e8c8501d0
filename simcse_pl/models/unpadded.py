"""Pass the sequences of a batch through a backbone as one, without the padding between them.

In plain terms: all tokens of a batch are one row [1, tokens], with the positions that they have in their sequences.
Embeddings, linear layers and norms compute no padding. Attention needs to know where a sequence begins: the kernels of
FlashAttention take the cumulative lengths; for others, the queries, keys and values are padded, and only these.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.cpu.layers import attention_with_fast_dropout
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.types import Backbone, Batch

_ATTENTION = "unpadded_sdpa"
_TOLERANCE = 1e-3  # relative to the largest state


class Packing(NamedTuple):
    """Where the tokens of a packed batch are in the padded one.

    Attributes:
        places: the index of each token in the flat padded batch, [tokens].
        shape: sequences and tokens of the padded batch.
    """

    places: Tensor
    shape: torch.Size

    def pack(self, padded: Tensor) -> Tensor:
        """Return the tokens [1, tokens, ...] of a tensor [sequences, longest, ...]."""
        return padded.flatten(0, 1).index_select(0, self.places).unsqueeze(0)

    def unpack(self, packed: Tensor) -> Tensor:
        """Return a tensor [sequences, longest, ...], 0 in the place of padding, of tokens [1, tokens, ...]."""
        padded = packed.new_zeros(self.shape.numel(), *packed.shape[2:])
        return padded.index_copy_(0, self.places, packed[0]).unflatten(0, self.shape)


def use_unpadded(backbone: Backbone, first_position: int = 0) -> None:
    """Let a backbone compute no padding: its inputs and its hidden states stay padded, [sequences, tokens, ...].

    States are 0 in the place of padding. The indices of the tokens cost one wait for a GPU in each pass.

    Args:
        backbone: a model whose attention is sdpa, or an implementation of FlashAttention, which stays.
        first_position: the id of the first position; RoBERTa counts from the id of its pad token plus 1.

    Raises:
        UserError: the states of unpadded sequences are not those of padded ones.
    """
    from transformers import AttentionInterface  # slow, and not needed before there is a model
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.utils.generic import is_flash_attention_requested

    AttentionInterface.register(_ATTENTION, _attention)
    AttentionMaskInterface.register(_ATTENTION, _mask)
    implementation, flash = backbone.config._attn_implementation, is_flash_attention_requested(backbone.config)
    mask = (torch.arange(5) < torch.tensor([[5], [3], [1]])).long().to(backbone.device)
    ids = torch.arange(3, 18, device=backbone.device).view_as(mask)
    ids = ids.masked_fill(mask == 0, backbone.config.pad_token_id or 0)
    backbone.packs_sequences = True
    if flash:
        backbone.set_attn_implementation("sdpa")  # no CPU has the kernels of FlashAttention
    padded = _states(backbone, ids, mask)
    backbone.register_forward_pre_hook(partial(_pack, first_position=first_position), with_kwargs=True)
    backbone.register_forward_hook(_unpack, with_kwargs=True)
    fails = f"unpadded=true: {type(backbone).__name__} cannot read several sequences as one"
    with reraise_as(fails):
        backbone.set_attn_implementation(_ATTENTION)
        unpadded = _states(backbone, ids, mask)
    if (unpadded - padded).abs().max() > _TOLERANCE * padded.abs().max():
        raise UserError(fails)
    if flash:
        backbone.set_attn_implementation(implementation)


@contextmanager
def with_padding(backbone: Backbone) -> Iterator[None]:
    """Compute padding, too, in the passes of the context."""
    packs, backbone.packs_sequences = packs_sequences(backbone), False
    try:
        yield
    finally:
        backbone.packs_sequences = packs


def packs_sequences(backbone: Backbone) -> bool:
    """Return whether a backbone computes no padding."""
    return bool(getattr(backbone, "packs_sequences", False))


@torch.no_grad()
def _states(backbone: Backbone, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the last hidden states of the tokens that are not padding, [tokens, dim]."""
    was_training = backbone.training
    states: Tensor = backbone.eval()(input_ids=ids, attention_mask=mask).last_hidden_state
    backbone.train(was_training)
    return states[mask == 1]


def _pack(
    backbone: Backbone, arguments: tuple[Any, ...], inputs: dict[str, Any], first_position: int
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Replace the padded inputs of a pass by packed ones, unless there is nothing to gain or to attend to."""
    from transformers.utils.generic import is_flash_attention_requested

    mask: Tensor | None = inputs.get("attention_mask")
    if mask is None or not packs_sequences(backbone):
        return None
    packing = Packing(mask.flatten().nonzero().squeeze(1), mask.shape)
    if len(packing.places) in (0, mask.numel()):
        return None
    counted = torch.ones_like(mask)
    if first_position and "input_ids" in inputs:  # RoBERTa does not count pad tokens, which a template may have inside
        counted = (inputs["input_ids"] != first_position - 1).to(mask.dtype)
    padded = {name: inputs[name] for name in ("input_ids", "token_type_ids", "inputs_embeds") if name in inputs}
    padded["position_ids"] = counted.cumsum(1) * counted + first_position - 1
    packed = {name: packing.pack(x) for name, x in padded.items()}
    if is_flash_attention_requested(backbone.config):
        ends, longest = F.pad(mask.sum(1).cumsum(0), (1, 0)).int(), mask.shape[1]
        packed |= {"attention_mask": None, "cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
        packed |= {"max_length_q": longest, "max_length_k": longest}
    return arguments, inputs | packed | {"packing": packing}


def _unpack(backbone: Backbone, arguments: tuple[Any, ...], inputs: dict[str, Any], output: Any) -> Any:
    """Pad the hidden states that a pass returns, if its inputs were packed."""
    if packing := inputs.get("packing"):
        output["last_hidden_state"] = packing.unpack(output["last_hidden_state"])
        if output.get("hidden_states"):
            output["hidden_states"] = tuple(packing.unpack(states) for states in output["hidden_states"])
    return output


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    packing: Packing | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention for transformers, of query, key and value [1, heads, tokens, dim] if they are packed."""
    if packing is None:
        return attention_with_fast_dropout(module, query, key, value, attention_mask, dropout, scaling, **options)
    query, key, value = (packing.unpack(x.transpose(1, 2)).transpose(1, 2) for x in (query, key, value))
    output, _ = attention_with_fast_dropout(module, query, key, value, attention_mask, dropout, scaling, **options)
    return packing.pack(output), None


def _mask(*, batch_size: int, q_length: int, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """Return the mask of padded sequences for transformers, also if it asks for that of packed ones."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    if attention_mask is not None and attention_mask.shape != (batch_size, q_length):
        batch_size, q_length = attention_mask.shape
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}  # finding out waits for a GPU
    mask: Tensor | None = ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](
        batch_size=batch_size, q_length=q_length, attention_mask=attention_mask, **options
    )
    return mask
