"""Masked language modelling as an auxiliary loss: l + lambda * l_mlm (Appendix A, Table D.2)."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DataCollatorForLanguageModeling

from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.gradient_cache import apply_in_chunks
from simcse_pl.losses.mlm_head import MLMHead
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.length_bucketing import length_groups
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.distributed import sum_over_ranks, world_size
from simcse_pl.utils.errors import UserError

HEADS = ("pretrained", "new")
NOT_CHOSEN = -100  # the label of a token that is not predicted; cross_entropy ignores it


class MaskedLanguageModeling(AuxiliaryLoss):
    """The loss of predicting masked tokens, as in BERT's pretraining (Devlin et al. 2019).

    As in the released code, all views of a batch are masked independently, and pass through the
    backbone once more. The released code's decoder is a copy of BERT's. This one is tied to the
    encoder's word embeddings, as in BERT. The masks are drawn from torch's global random state, on
    the device of the batch.

    The head is trained with the encoder. Training checkpoints contain it; saved encoders do not.

    Args:
        weight: lambda, 0 or more.
        probability: probability of choosing a token. Of the chosen tokens, 80 % are replaced by the
            mask token, 10 % by a random token, and 10 % stay. Special tokens are never chosen.
        head: `pretrained` for the checkpoint's own head, or `new` for one with random weights.
    """

    name = "mlm"
    head: MLMHead
    special_ids: Tensor

    def __init__(self, weight: float = 0.1, probability: float = 0.15, head: str = "pretrained") -> None:
        super().__init__(weight)
        if not 0 < probability <= 1:
            raise UserError(f"auxiliary.mlm.probability={probability}: it must be above 0 and at most 1")
        if head not in HEADS:
            raise UserError(f"auxiliary.mlm.head={head}: choose one of {', '.join(HEADS)}")
        self.probability = probability
        self.head_is_new = head == "new"

    def attach(self, encoder: SentenceEncoder) -> None:
        """Load or initialize the head, or raise UserError if there is no mask token or no pretrained head."""
        tokenizer, backbone = encoder.tokenizer, encoder.backbone
        if tokenizer.mask_token is None:
            raise UserError(f"auxiliary.mlm: the tokenizer of {backbone.config.name_or_path} has no mask token")
        self._collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=self.probability)
        self.register_buffer("special_ids", torch.tensor(tokenizer.all_special_ids), persistent=False)
        self.head = MLMHead(backbone, pretrained=not self.head_is_new)

    def mask(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return masked ids and labels for ids [..., tokens]; other tokens have the label NOT_CHOSEN."""
        special = torch.isin(input_ids, self.special_ids)
        with input_ids.device:  # where the collator draws
            masked, labels = self._collator.torch_mask_tokens(input_ids.clone(), special_tokens_mask=special)
        return masked, labels

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the mean cross-entropy over the tokens chosen on all devices, 0 if there are none."""
        views = batch.inputs["input_ids"].shape[1]
        sequences = {name: batch.inputs[name].flatten(0, 1) for name in encoder.tokenizer.model_input_names}
        sequences["input_ids"], sequences["labels"] = self.mask(sequences["input_ids"])
        total = apply_in_chunks(partial(self._sum, encoder), sequences, self.chunk_size and self.chunk_size * views)
        chosen = sum_over_ranks((sequences["labels"] != NOT_CHOSEN).sum())
        return total.sum() * world_size() / chosen.clamp(min=1)

    def _sum(self, encoder: SentenceEncoder, sequences: Batch) -> Tensor:
        """Return the sum of the cross-entropy over the chosen tokens of some sequences, [1]."""
        states, labels = [], []
        groups = length_groups(encoder.backbone, sequences, encoder.ignores_padding) if self.length_bucketing else None
        for group in [group for _, group in groups] if groups else [dict(sequences)]:
            wanted = group.pop("labels")
            chosen = wanted != NOT_CHOSEN
            states.append(encoder.backbone(**group).last_hidden_state[chosen])
            labels.append(wanted[chosen])
        scores = self.head(torch.cat(states))  # at the chosen positions only: the vocabulary is large
        return F.cross_entropy(scores, torch.cat(labels), reduction="sum").view(1)
