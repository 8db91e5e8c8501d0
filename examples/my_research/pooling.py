"""A custom pooling that reads the token ids: the mean of [CLS] and the [MASK] of a template."""

from collections.abc import Sequence

import torch
from torch import Tensor

MASK = 103  # the id of [MASK] in BERT's vocabulary


def mask_and_cls(hidden_states: Sequence[Tensor], inputs: dict[str, Tensor]) -> Tensor:
    """Return the mean of the last layer's vectors of [CLS] and of the first [MASK].

    Args:
        hidden_states: the outputs of the embeddings and of each layer, [batch, tokens, dim].
        inputs: the tokenizer's tensors, [batch, tokens].

    Returns:
        [batch, dim].
    """
    position = (inputs["input_ids"] == MASK).int().argmax(dim=1)
    last = hidden_states[-1]
    rows = torch.arange(len(last), device=last.device)
    return (last[:, 0] + last[rows, position]) / 2
