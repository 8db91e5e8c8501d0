"""The types of a backbone and of its inputs."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

Batch = dict[str, Tensor]  # the tokenizer's tensors, such as `input_ids`

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    Backbone = PreTrainedModel
else:
    Backbone = nn.Module  # to import PreTrainedModel takes longer than to import torch
