"""The head of a masked language model: from hidden states to scores of the vocabulary."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoModelForMaskedLM, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from simcse_pl.models.backbone import load_masked_language_model
from simcse_pl.utils.errors import UserError


class MLMHead(nn.Module):
    """The part of an architecture's masked language model that follows its backbone.

    The module holds the complete AutoModelForMaskedLM, with its backbone replaced by a stub that returns
    the given hidden states. It therefore works for every architecture, and scores only the chosen
    positions. Tied weights, usually those of the decoder, are tied to the trained backbone.

    Args:
        backbone: the trained backbone.
        pretrained: load the head from the backbone's checkpoint, or else initialize it from torch's
            global random state.

    Raises:
        UserError: if the architecture has no masked language model, or its checkpoint no head.
    """

    def __init__(self, backbone: PreTrainedModel, pretrained: bool = True) -> None:
        super().__init__()
        config = copy.deepcopy(backbone.config)
        if type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
            raise UserError(f"transformers has no masked language model for {config.model_type}")
        try:
            model = (
                load_masked_language_model(str(config.name_or_path), config)
                if pretrained
                else AutoModelForMaskedLM.from_config(config, dtype=torch.float32)
            )
        except UserError as error:
            raise UserError(f"{error}; its option head=new initializes a new one") from error
        setattr(model, model.base_model_prefix, backbone)
        model.tie_weights()
        setattr(model, model.base_model_prefix, _GivenHiddenStates())
        self.model = nn.Module.to(model, backbone.dtype).train()

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return logits: [positions, dim] in, [positions, vocabulary] out."""
        scores: Tensor = self.model(inputs_embeds=hidden_states.unsqueeze(0)).logits
        return scores.squeeze(0)

    @contextmanager
    def around(self, backbone: PreTrainedModel) -> Iterator[PreTrainedModel]:
        """Yield the masked language model with a backbone in its place, to save it."""
        stub = getattr(self.model, self.model.base_model_prefix)
        setattr(self.model, self.model.base_model_prefix, backbone)
        try:
            yield self.model
        finally:
            setattr(self.model, self.model.base_model_prefix, stub)


class _GivenHiddenStates(nn.Module):
    """A backbone that returns its input embeddings as the last hidden states."""

    def forward(self, *_: Tensor | None, inputs_embeds: Tensor, **__: Tensor | None) -> BaseModelOutput:
        return _LastHiddenState(last_hidden_state=inputs_embeds)


@dataclass
class _LastHiddenState(BaseModelOutput):
    """The output of a backbone, in which all other attributes, such as LUKE's entity states, are None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)
