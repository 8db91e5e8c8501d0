"""Pass the sequences of a batch through a backbone as one, without the padding between them.

In plain terms: all tokens of a batch are one row [1, tokens], with the positions that they have in their sequences. No
layer computes padding but attention, where queries, keys and values are padded for a moment. The kernels of
FlashAttention need no padding there either: they take the ends of the sequences.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.models.backbone import UNPADDED, mask_without_synchronization, packs_sequences
from simcse_pl.speed.dropout import attention_with_fast_dropout
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.private import attention_functions, attention_of, register_attention, uses_flash_attention
from simcse_pl.utils.types import Backbone


class Packing(NamedTuple):
    """Where the tokens of a packed batch are in the padded one.

    Attributes:
        indices: the index of each token in the flat padded batch, [tokens].
        shape: sequences and tokens of the padded batch.
        ends: the cumulative lengths of the sequences, which begin with 0.
    """

    indices: Tensor
    shape: torch.Size
    ends: Tensor

    def pack(self, padded: Tensor) -> Tensor:
        """Return the tokens [1, tokens, ...] of a tensor [sequences, longest, ...]."""
        return padded.flatten(0, 1).index_select(0, self.indices).unsqueeze(0)

    def unpack(self, packed: Tensor) -> Tensor:
        """Return a tensor [sequences, longest, ...], 0 where padding is, of tokens [1, tokens, ...]."""
        padded = packed.new_zeros(self.shape.numel(), *packed.shape[2:])
        return padded.index_copy_(0, self.indices, packed[0]).view(*self.shape, *packed.shape[2:])


def use_unpadded(backbone: Backbone, first_position: int) -> None:
    """Let a backbone compute no padding. Its inputs and its hidden states stay padded, the latter with zeros.

    To find the padding, each pass waits once for a GPU.

    Args:
        backbone: a model with an attention of transformers' interface; an implementation of FlashAttention is kept.
        first_position: see backbone.first_position.
    """
    name, attention, mask = UNPADDED, _attention, _mask
    if uses_flash_attention(backbone.config):
        # It keeps its name, by which transformers finds the kernel. Models that are not packed still get what the
        # original functions return.
        name = attention_of(backbone.config)
        attention, mask = attention_functions(name)
        if not isinstance(attention, partial):  # an earlier encoder's
            attention, mask = partial(_attention, kernel=attention), partial(_mask, kernel_mask=mask)
    register_attention(name, attention, mask)
    backbone.set_attn_implementation(name)
    positions = "position_ids" in inspect.signature(backbone.forward).parameters  # T5's are those of the padded row
    if attention_of(backbone.config) != name or not positions:  # transformers warns only
        raise UserError(f"attn_implementation={name}: {type(backbone).__name__} has its own attention: choose null")
    backbone.register_forward_pre_hook(partial(_pack, first_position=first_position), with_kwargs=True)
    backbone.register_forward_hook(_unpack, with_kwargs=True)
    vars(backbone)["packs_sequences"] = True


def _pack(
    backbone: Backbone, arguments: tuple[Any, ...], inputs: dict[str, Any], first_position: int
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Replace the padded inputs of a pass by packed ones, if there are both tokens and padding."""
    if not packs_sequences(backbone):
        return None
    mask, ids = inputs["attention_mask"], inputs.get("input_ids")
    packing = Packing(mask.flatten().nonzero().squeeze(1), mask.shape, F.pad(mask.sum(1).cumsum(0), (1, 0)).int())
    if len(packing.indices) in (0, mask.numel()):
        return None
    counted = torch.ones_like(mask)
    if first_position and ids is not None:  # RoBERTa does not count pad tokens, which a template may have inside
        counted = (ids != first_position - 1).to(mask.dtype)
    padded = {name: inputs[name] for name in inputs.keys() & {"input_ids", "inputs_embeds", "token_type_ids"}}
    padded["position_ids"] = counted.cumsum(1) * counted + first_position - 1
    return arguments, inputs | {name: packing.pack(x) for name, x in padded.items()} | {"packing": packing}


def _unpack(backbone: Backbone, arguments: tuple[Any, ...], inputs: dict[str, Any], output: Any) -> None:
    """Pad the hidden states that a pass returns, if its inputs were packed."""
    if packing := inputs.get("packing"):
        output["last_hidden_state"] = packing.unpack(output["last_hidden_state"])
        if output.get("hidden_states"):
            output["hidden_states"] = tuple(map(packing.unpack, output["hidden_states"]))


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    packing: Packing | None = None,
    kernel: Callable[..., tuple[Tensor, None]] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention for transformers of query, key and value [1, heads, tokens, dim] if they are packed."""
    with_kernel = attention_mask is None if packing else _has_kernels(query.device, query.dtype)
    if packing and with_kernel:
        ends, longest = packing.ends, packing.shape[1]
        options |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}
    if packing is None or with_kernel:
        attend = kernel if kernel and with_kernel else attention_with_fast_dropout
        return attend(module, query, key, value, attention_mask, **options)
    query, key, value = (packing.unpack(x.transpose(1, 2)).transpose(1, 2) for x in (query, key, value))
    output, _ = attention_with_fast_dropout(module, query, key, value, attention_mask, **options)
    return packing.pack(output), None


def _mask(
    *, batch_size: int, q_length: int, kernel_mask: Callable[..., Tensor | None] | None = None, **options: Any
) -> Tensor | None:
    """Return the mask for `_attention`: for packed sequences that of padded ones, which a kernel does not need."""
    has_kernels = _has_kernels(options["device"], options["dtype"])
    make = kernel_mask if kernel_mask and has_kernels else mask_without_synchronization
    mask = options["attention_mask"]
    if mask is not None and mask.shape != (batch_size, q_length) and not options["q_offset"]:  # no cache of keys
        if make is kernel_mask:
            return None
        batch_size, q_length = mask.shape
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}  # which waits for a GPU
    return make(batch_size=batch_size, q_length=q_length, **options)


def _has_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether FlashAttention has kernels; passes before training are on a CPU, some evaluations in float32."""
    return device.type != "cpu" and (dtype.itemsize == 2 or torch.is_autocast_enabled(device.type))
