"""DiffCSE (Chuang et al. 2022): replaced token detection with the help of the sentence vector."""

import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor, nn
from transformers import PreTrainedModel

from simcse_pl.losses.frozen_encoder import Frozen
from simcse_pl.losses.loss import EmbeddedBatch, check_width_is_kept
from simcse_pl.losses.mlm import NOT_CHOSEN, Probability, TokenMaskingLoss
from simcse_pl.methods.layers import changed_layer_input, embedding_module
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.models.masked_lm import load_masked_language_model
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.tensors import at_least_float32
from simcse_pl.utils.types import Batch


class ReplacedTokenDetection(TokenMaskingLoss):
    """The loss of finding the replaced tokens of a sentence from its vector (DiffCSE, Chuang et al. 2022).

    In plain terms: a generator edits the sentence, and a discriminator that knows the vector of the
    original sentence says which tokens differ. The vector must keep the information that the edits
    change. For a sentence x with the vector h, some tokens of x are masked, and x'' is the generator's
    prediction for every token. The loss is the mean cross-entropy of

        softmax( W D([h; x''_2; ...; x''_n]) + b )    with the labels    x''_i != x_i

    over all tokens, where padding counts as not replaced. D is a second backbone, at first equal to the
    encoder's. h is the embedding after the projection head. It replaces the output of D's embedding
    layer at the first position. All views are edited. D, W and b are trained with the encoder.

    Args:
        weight: lambda.
        probability: of masking; see TokenMaskingLoss.
        generator: a folder, a hub name or package:NAME of a masked language model with the encoder's
            vocabulary. It is not trained, and uses dropout. None replaces the chosen tokens by random
            ones, which needs no model, but is an easier task.
    """

    discriminator: PreTrainedModel

    def __init__(
        self, weight: NonNegativeFloat = 0.005, probability: Probability = 0.3, generator: str | Path | None = None
    ) -> None:
        super().__init__(weight, probability)
        self.generator_name = generator

    def attach(self, encoder: SentenceEncoder) -> None:
        """Load the generator, copy the backbone, and initialize the classifier; raise UserError if they do not fit."""
        super().attach(encoder)
        embedding_module(encoder.backbone)  # called for its error only
        check_width_is_kept(encoder)
        self.vocabulary = len(encoder.tokenizer)
        self.generator: Frozen | None = None
        if self.generator_name is not None:
            name, option = str(self.generator_name), f"generator={self.generator_name}"
            with reraise_as(f"{option} (null needs no model)", users_too=True):
                model, tokenizer = load_masked_language_model(name), load_tokenizer(name)
            if tokenizer.get_vocab() != encoder.tokenizer.get_vocab():
                raise UserError(f"{option}: its vocabulary must be that of the trained encoder")
            self.generator = Frozen(model.train())
        self.discriminator = copy.deepcopy(encoder.backbone).requires_grad_(True).train()
        if encoder.backbone.dtype == torch.bfloat16:  # small updates of such weights would be lost
            self.discriminator.float()
        self.classifier = nn.Linear(encoder.pooled_dim, 2)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        views = batch.inputs["input_ids"].shape[1]
        chunk_size = batch.chunk_size and batch.chunk_size * views
        sequences = {name: batch.inputs[name].flatten(0, 1) for name in batch.encoder.tokenizer.model_input_names}
        ids, attended = sequences["input_ids"], sequences["attention_mask"] != 0
        edited = torch.where(attended, self.edit(ids, sequences["attention_mask"], chunk_size), ids)
        edited[:, 0] = ids[:, 0]
        sequences |= {"input_ids": edited, "labels": (edited != ids).long()}
        sequences["sentence"] = batch.embeddings.flatten(0, 1).unsqueeze(1)
        return apply_in_chunks(self._losses, sequences, chunk_size).mean()

    @torch.no_grad()
    def edit(self, ids: Tensor, attention_mask: Tensor, chunk_size: float | None = None) -> Tensor:
        """Return the ids [sequences, tokens] that the generator predicts for a masked copy of `ids`.

        Without a generator, random ids replace the chosen tokens.
        """
        masked, labels = self.mask(ids)
        if self.generator is None:
            return torch.where(labels == NOT_CHOSEN, ids, torch.randint_like(ids, self.vocabulary))
        network, inputs = self.generator.network, {"input_ids": masked, "attention_mask": attention_mask}
        return apply_in_chunks(lambda chunk: network(**chunk).logits.argmax(dim=-1), inputs, chunk_size)

    def _losses(self, sequences: Batch) -> Tensor:
        """Return the mean cross-entropy of each sequence, [sequences]."""
        inputs = dict(sequences)
        labels, sentence = inputs.pop("labels"), inputs.pop("sentence")
        with changed_layer_input(self.discriminator, lambda states: torch.cat([sentence, states[:, 1:]], dim=1)):
            states = self.discriminator(**inputs).last_hidden_state
        scores = at_least_float32(self.classifier(states))
        return F.cross_entropy(scores.transpose(1, 2), labels, reduction="none").mean(dim=1)
