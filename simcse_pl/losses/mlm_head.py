"""The head of a masked language model: from a backbone's hidden states to a score for every token of its vocabulary."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoModelForMaskedLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from simcse_pl.models.backbone import load_masked_language_model
from simcse_pl.utils.errors import UserError, reraise_as


class MLMHead(nn.Module):
    """All that an architecture's masked language model does after its backbone, on the hidden states it is given.

    It is the model itself, with a stand-in where its backbone was: whatever BERT, RoBERTa, ELECTRA and the others
    each have there is run as they run it. Weights that it shares with its backbone, as a rule the decoder's with
    the word embeddings, are shared with ours instead.

    Args:
        model: a masked language model; its own backbone is given up.
        backbone: of the same architecture and size.

    Raises:
        UserError: the architecture needs more than hidden states.
    """

    def __init__(self, model: PreTrainedModel, backbone: PreTrainedModel) -> None:
        super().__init__()
        _share_weights(model, backbone)
        setattr(model, model.base_model_prefix, _HiddenStatesAsGiven())
        self.model = nn.Module.to(model, backbone.dtype).eval()
        with reraise_as(f"auxiliary.mlm: {type(model).__name__} cannot score hidden states alone"), torch.no_grad():
            self(torch.zeros(1, backbone.config.hidden_size, dtype=backbone.dtype))
        model.train()  # as a fresh module is, and a loaded one is not

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Scores before the softmax: [positions, dim] in, [positions, vocabulary] out."""
        scores: Tensor = self.model(inputs_embeds=hidden_states.unsqueeze(0)).logits
        return scores.squeeze(0)

    @classmethod
    def pretrained(cls, backbone: PreTrainedModel) -> "MLMHead":
        """The head in the checkpoint that a backbone was loaded from.

        Raises:
            UserError: the checkpoint has none, or the architecture has no masked language model.
        """
        config = _config(backbone)
        try:
            return cls(load_masked_language_model(str(config.name_or_path), config), backbone)
        except UserError as error:
            raise UserError(f"{error}; auxiliary.mlm.head=new makes a fresh one") from error

    @classmethod
    def fresh(cls, backbone: PreTrainedModel) -> "MLMHead":
        """A head with weights drawn as the architecture draws them, from torch's global random state.

        Raises:
            UserError: the architecture has no masked language model.
        """
        return cls(AutoModelForMaskedLM.from_config(_config(backbone), dtype=torch.float32), backbone)


@dataclass
class _LastHiddenState(BaseModelOutput):
    """The output of a backbone, with None for whatever else an architecture's own output has."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _HiddenStatesAsGiven(nn.Module):
    """Where a backbone was: what it is given for embeddings is what it returns for its last layer."""

    def forward(self, *_: Tensor | None, inputs_embeds: Tensor, **__: Tensor | None) -> BaseModelOutput:
        return _LastHiddenState(last_hidden_state=inputs_embeds)


def _config(backbone: PreTrainedModel) -> PreTrainedConfig:
    """A copy of the backbone's, which loading may change: the layers that it was cut to, and its rates of dropout."""
    if type(backbone.config) not in MODEL_FOR_MASKED_LM_MAPPING:
        raise UserError(f"auxiliary.mlm: transformers has no masked language model for {backbone.config.model_type}")
    return copy.deepcopy(backbone.config)


def _share_weights(model: PreTrainedModel, backbone: PreTrainedModel) -> None:
    """Put the backbone's weights wherever a masked language model shares one with its own backbone."""
    own_names = {weight: name for name, weight in model.base_model.named_parameters()}
    of_backbone = set(model.base_model.modules())  # among them a pooler, which ours is without
    for module in set(model.modules()) - of_backbone:
        for name, weight in list(module.named_parameters(recurse=False)):
            if weight in own_names:
                setattr(module, name, backbone.get_parameter(own_names[weight]))
