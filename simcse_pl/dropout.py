"""Fixed dropout: the views of a row under one and the same mask ("fixed 0.1" of Table 3)."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from simcse_pl.data.batches import Batch
from simcse_pl.errors import UserError


def embed_with_fixed_dropout(encoder: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """All views of a batch in one pass, those of a row under the same dropout masks ("fixed 0.1" of Table 3).

    Views of a row that are the same input are one computation under one mask: it is done once, and they share its
    vector. So they are equal to the bit with any encoder; computed twice in one batch they need not be, as a matrix
    product may sum in another order for a row that stands elsewhere. Views of different text share their masks
    token by token, counted from the first.

    Args:
        encoder: from inputs [sequences, tokens] to vectors [sequences, dim].
        batch: inputs [batch, views, tokens].

    Returns:
        [batch, views, dim].

    Raises:
        UserError: views differ, and SharedDropout cannot make the encoder's dropouts share a mask.
    """
    alike = torch.stack([(x.unsqueeze(2) == x.unsqueeze(1)).all(dim=-1) for x in batch.values()]).all(dim=0)
    first = alike.int().argmax(dim=-1)  # [batch, views]: a row's first view with the same input
    distinct = first == torch.arange(first.shape[1], device=first.device)
    rows = distinct.nonzero()[:, 0]
    with SharedDropout(rows) if len(rows) > len(first) else nullcontext():
        vectors = encoder({name: x[distinct] for name, x in batch.items()})
    place = distinct.flatten().cumsum(dim=0).view_as(first) - 1
    return vectors[place.gather(1, first)]


class SharedDropout(TorchFunctionMode):
    """A context in which sequences of the same row are dropped out by the same masks, drawn once a row.

    It acts on torch.nn.functional.dropout, where nn.Dropout ends too, and scaled_dot_product_attention, on any
    device and under autocast. It does not reach attention that is computed in other ways (the flash_attn package,
    nn.MultiheadAttention), nor what gradient checkpointing computes anew after the context has ended.

    Args:
        rows: [sequences], the row that each sequence of the batch belongs to: [0, 0, 1, 1] for two rows of two views.

    Raises:
        UserError: in the context, dropout of three or more dimensions of which the first is not the sequences. A
            matrix of another length is taken for one that all sequences share, like relative positions.
    """

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.number_of_rows = int(rows.max()) + 1

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called in place of every function of torch; torch leaves the mode while it runs."""
        kwargs = kwargs or {}
        if func is F.dropout:
            return self._dropout(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        return func(*args, **kwargs)

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return input
        if len(input) != len(self.rows):
            if input.dim() > 2:
                raise UserError(
                    f"fixed dropout: this model drops out a tensor {list(input.shape)} that does not begin with the "
                    f"batch's {len(self.rows)} sequences: give it views of the same text, or ordinary dropout"
                )
            return F.dropout(input, p)
        at_least_float32 = torch.promote_types(input.dtype, torch.float32)  # 1 / (1 - p) loses digits in bfloat16
        mask = F.dropout(input.new_ones(self.number_of_rows, *input.shape[1:], dtype=at_least_float32), p)
        return (input * mask[self.rows]).to(input.dtype)

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Tensor:
        if dropout_p == 0:
            return F.scaled_dot_product_attention(query, key, value, attn_mask, is_causal=is_causal, **options)
        # attending to unit vectors gives the probabilities, whatever the masks, the scale and the groups of heads
        units = torch.eye(key.shape[-2], dtype=value.dtype, device=value.device).expand(*key.shape[:-1], -1)
        probabilities = F.scaled_dot_product_attention(query, key, units, attn_mask, is_causal=is_causal, **options)
        values = value.repeat_interleave(query.shape[-3] // value.shape[-3], dim=-3)
        return self._dropout(probabilities, dropout_p) @ values
