"""Masked language modelling: added to the objective (SimCSE's Appendix A and Table D.2), or in its place."""

from functools import partial
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor
from transformers import PreTrainedModel

from simcse_pl.cpu.length_groups import LengthGroups
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.mlm_head import MLMHead
from simcse_pl.losses.token_masking import NOT_CHOSEN, Probability, TokenMaskingLoss
from simcse_pl.models.adapters import has_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.utils.distributed import sum_over_ranks, world_size
from simcse_pl.utils.types import Batch


class MaskedLanguageModeling(TokenMaskingLoss):
    """The loss of predicting masked tokens, as in BERT's pretraining (Devlin et al. 2019).

    As in the released code, all views of a batch are masked independently, and pass through the
    backbone once more. The released code's decoder is a copy of BERT's. This one is tied to the
    encoder's word embeddings, as in BERT. The masks are drawn from torch's global random state, on
    the device of the batch.

    The head is trained with the encoder. Training checkpoints contain it. If this loss is the objective, the saved
    encoder contains it too, so that AutoModelForMaskedLM loads it, and the perplexity of held-out rows is measured.

    Args:
        weight: lambda.
        probability: see TokenMaskingLoss.
        head: `pretrained` for the checkpoint's own head, or `new` for one with random weights.
        whole_words: see TokenMaskingLoss.
        anchors_only: mask the anchors alone, for continued pretraining before SimCSE.
    """

    def __init__(
        self,
        weight: NonNegativeFloat = 1.0,
        probability: Probability = 0.15,
        head: Literal["pretrained", "new"] = "pretrained",
        whole_words: bool = False,
        anchors_only: bool = False,
    ) -> None:
        super().__init__(weight, probability, whole_words)
        self.head_is_new, self.anchors_only = head == "new", anchors_only

    def attach(self, encoder: SentenceEncoder) -> None:
        """Load or initialize the head, or raise UserError if there is no mask token or no pretrained head."""
        super().attach(encoder)
        self.head = MLMHead(encoder.backbone, not self.head_is_new)

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the mean cross-entropy over the tokens chosen on all devices, 0 if there are none."""
        inputs = {name: x[:, :1] if self.anchors_only else x for name, x in batch.inputs.items()}
        return self.mean_over_chosen(encoder, encoder.backbone, inputs, batch.chunk_size)

    def mean_over_chosen(
        self,
        encoder: SentenceEncoder,
        backbone: PreTrainedModel,
        inputs: Batch,
        chunk_size: int | None = None,
        **further: Tensor,
    ) -> Tensor:
        """Return the mean cross-entropy over the tokens chosen on all devices, 0 if there are none.

        Args:
            encoder: the trained encoder.
            backbone: passed to `self.states`.
            inputs: tensors [batch, views, tokens].
            chunk_size: see EmbeddedBatch.
            further: more inputs for `self.states`, each [batch * views, 1, ...].
        """
        views = inputs["input_ids"].shape[1]
        sequences = {name: inputs[name].flatten(0, 1) for name in encoder.tokenizer.model_input_names}
        sequences["input_ids"], sequences["labels"] = self.mask(sequences["input_ids"])
        of_chunk = partial(self._sum, backbone, encoder.groups)
        total = apply_in_chunks(of_chunk, sequences | further, chunk_size and chunk_size * views)
        chosen = sum_over_ranks((sequences["labels"] != NOT_CHOSEN).sum())
        return total.sum() * world_size() / chosen.clamp(min=1)

    def _sum(self, backbone: PreTrainedModel, groups: LengthGroups, sequences: Batch) -> Tensor:
        """Return the sum of the cross-entropy over the chosen tokens of some sequences, [1]."""
        states, labels = [], []
        for _, group in groups.split(backbone, sequences):
            wanted = group.pop("labels")
            chosen = wanted != NOT_CHOSEN
            states.append(self.states(backbone, group)[chosen])
            labels.append(wanted[chosen])
        scores = self.head(torch.cat(states))  # at the chosen positions only: the vocabulary is large
        return F.cross_entropy(scores, torch.cat(labels), reduction="sum").view(1)

    def states(self, backbone: PreTrainedModel, inputs: Batch) -> Tensor:
        """Return the hidden states of masked sequences, [sequences, tokens, dim]."""
        states: Tensor = backbone(**inputs).last_hidden_state
        return states

    def held_out_metrics(self, loss: Tensor) -> dict[str, Tensor]:
        """Return the loss and the perplexity."""
        return {"loss": loss, "perplexity": loss.exp()}

    def save(self, encoder: SentenceEncoder, folder: Path) -> None:
        """Save the encoder with the head; of an adapter, only its weights."""
        if has_adapter(encoder.backbone):
            super().save(encoder, folder)
            return
        with self.head.around(encoder.backbone) as model:
            encoder.save_pretrained(folder, model)
