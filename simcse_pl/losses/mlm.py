"""Masked language modelling beside the objective: l + lambda * l_mlm (Appendix A and Table D.2 of the paper)."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DataCollatorForLanguageModeling

from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.gradient_cache import in_chunks
from simcse_pl.losses.mlm_head import MLMHead
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.length_bucketing import length_groups
from simcse_pl.models.tokenization import Batch
from simcse_pl.utils.distributed import sum_over_ranks, world_size
from simcse_pl.utils.errors import UserError

HEADS = ("pretrained", "new")
NOT_CHOSEN = -100  # the label of a token that is not predicted


class MaskedLanguageModeling(AuxiliaryLoss):
    """The loss of predicting tokens that were hidden from the encoder, as BERT was trained (Devlin et al. 2019).

    All views of a batch are masked, each by itself, and go through the backbone once more: what the released code
    does. Its decoder, though, is a copy of BERT's, and here it shares the encoder's word embeddings, as BERT's does.
    The mask comes from torch's global random state on the batch's device.

    The head is trained with the encoder and is in checkpoints of training; a saved encoder is without it.

    Args:
        weight: lambda, 0 or more.
        probability: of a token to be chosen; of those chosen 80 % become the mask token, 10 % a random token of the
            vocabulary, and 10 % stay. Special tokens are never chosen.
        head: `pretrained`, the checkpoint's own, or `new`, with fresh weights.

    Raises:
        UserError: a value out of range.
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
        """Load or make the head, and learn the tokenizer's special tokens.

        Raises:
            UserError: a tokenizer without a mask token, or a checkpoint without the head that is asked for.
        """
        tokenizer, backbone = encoder.tokenizer, encoder.backbone
        if tokenizer.mask_token is None:
            raise UserError(f"auxiliary.mlm: the tokenizer of {backbone.config.name_or_path} has no mask token")
        self._collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=self.probability)
        self.register_buffer("special_ids", torch.tensor(tokenizer.all_special_ids), persistent=False)
        self.head = MLMHead.fresh(backbone) if self.head_is_new else MLMHead.pretrained(backbone)

    def mask(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Choose tokens and hide them.

        Args:
            input_ids: [..., tokens].

        Returns:
            Two of its shape: what the encoder reads, and the labels, NOT_CHOSEN wherever nothing is to be predicted.
        """
        special = torch.isin(input_ids, self.special_ids)
        with input_ids.device:  # where the collator draws
            masked, labels = self._collator.torch_mask_tokens(input_ids.clone(), special_tokens_mask=special)
        return masked, labels

    def forward(self, encoder: SentenceEncoder, batch: Batch) -> Tensor:
        """The mean cross-entropy over the tokens that were chosen on all devices; 0 where none was.

        Args:
            encoder: that of `attach`.
            batch: tensors [batch, views, tokens].

        Returns:
            A scalar.
        """
        views = batch["input_ids"].shape[1]
        sequences = {name: batch[name].flatten(0, 1) for name in encoder.tokenizer.model_input_names}
        sequences["input_ids"], sequences["labels"] = self.mask(sequences["input_ids"])
        total = in_chunks(partial(self._sum, encoder), sequences, self.chunk_size and self.chunk_size * views).sum()
        chosen = sum_over_ranks((sequences["labels"] != NOT_CHOSEN).sum())
        return total * world_size() / chosen.clamp(min=1)

    def _sum(self, encoder: SentenceEncoder, sequences: Batch) -> Tensor:
        """The sum of the cross-entropy over the tokens of some sequences, [1]."""
        states, labels = [], []
        for _, group in (
            length_groups(encoder.backbone, sequences, encoder.ignores_padding)
            if self.length_bucketing
            else [(None, dict(sequences))]
        ):
            wanted = group.pop("labels")
            chosen = wanted != NOT_CHOSEN
            states.append(encoder.backbone(**group).last_hidden_state[chosen])
            labels.append(wanted[chosen])
        scores = self.head(torch.cat(states))  # nobody asks for the vocabulary at other positions
        return F.cross_entropy(scores, torch.cat(labels), reduction="sum").view(1)
