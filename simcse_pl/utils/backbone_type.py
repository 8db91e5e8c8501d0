"""The type of a backbone."""

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    Backbone = PreTrainedModel
else:
    Backbone = nn.Module  # to import PreTrainedModel takes longer than to import torch
