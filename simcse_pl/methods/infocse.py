"""InfoCSE (Wu et al. 2022): masked language modelling with the help of the sentence vector."""

from typing import Literal

import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor
from transformers import PreTrainedModel

from simcse_pl.losses.frozen_encoder import Frozen
from simcse_pl.losses.loss import EmbeddedBatch, check_width_is_kept
from simcse_pl.losses.mlm import MaskedLanguageModeling, MLMHead, Probability, TokenMaskingLoss
from simcse_pl.methods.layers import embedding_module, first_layers, new_layers, run_layers
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Batch


class SentenceMaskedLanguageModeling(MaskedLanguageModeling):
    """The loss of predicting masked tokens from the sentence vector (InfoCSE, Wu et al. 2022).

    In plain terms: a shallow network predicts the masked tokens. It needs the sentence vector, so the
    vector must contain more of the sentence. For a sentence x with the pooled vector h and its masked
    copy x', the loss is the mean cross-entropy of

        softmax( MLM(T([h; F(x')_2; ...; F(x')_n])) )

    at the masked positions. F is a frozen copy of the first layers of the encoder at the start of
    training. T are new layers of the same kind, and MLM is the head of a masked language model. All
    views are masked. T and MLM are trained with the encoder.

    Args:
        weight: lambda.
        probability: see TokenMaskingLoss.
        head: `pretrained` for a copy of the checkpoint's own MLM head, or `new` for random weights.
        layers: the number of layers of T.
        frozen_layers: the number of layers of F.
        frozen_dropout: whether F uses dropout.
    """

    embeds = True
    head_layers: PreTrainedModel

    def __init__(
        self,
        weight: NonNegativeFloat = 1e-5,
        probability: Probability = 0.4,
        head: Literal["pretrained", "new"] = "pretrained",
        layers: PositiveInt = 2,
        frozen_layers: PositiveInt = 6,
        frozen_dropout: bool = False,
    ) -> None:
        super().__init__(weight, probability, head)
        self.layers, self.frozen_layers, self.frozen_dropout = layers, frozen_layers, frozen_dropout

    def attach(self, encoder: SentenceEncoder) -> None:
        """Copy the frozen layers, and initialize the trained ones; raise UserError if the encoder does not fit."""
        TokenMaskingLoss.attach(self, encoder)
        backbone = encoder.backbone
        available = backbone.config.num_hidden_layers
        for option, value in (("layers", self.layers), ("frozen_layers", self.frozen_layers)):
            if value > available:
                raise UserError(f"{option}={value}: the model has {available} layers")
        embedding_module(backbone)  # called for its error only
        check_width_is_kept(encoder)
        self.frozen = Frozen(first_layers(backbone, self.frozen_layers).train(self.frozen_dropout))
        self.head_layers = new_layers(backbone, self.layers).train()
        self.head = MLMHead(backbone, not self.head_is_new, tied=False)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        assert isinstance(self.frozen.network, PreTrainedModel)
        sentence = batch.pooled.flatten(0, 1).unsqueeze(1)
        return self.mean_over_chosen(batch, self.frozen.network, batch.inputs, sentence=sentence)

    def states(self, backbone: PreTrainedModel, inputs: Batch) -> Tensor:
        """Return the states of the trained layers; position 0 begins as the sentence vector."""
        inputs = dict(inputs)
        sentence = inputs.pop("sentence")
        tokens = super().states(backbone, inputs)
        return run_layers(self.head_layers, torch.cat([sentence, tokens[:, 1:]], dim=1), inputs["attention_mask"])
