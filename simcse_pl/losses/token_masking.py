"""The base class of the auxiliary losses that mask tokens."""

import torch
from torch import Tensor
from transformers import DataCollatorForLanguageModeling

from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError

NOT_CHOSEN = -100  # the label of a token that is not predicted; cross_entropy ignores it


class TokenMaskingLoss(AuxiliaryLoss):
    """An auxiliary loss that masks tokens as BERT's pretraining does (Devlin et al. 2019).

    Args:
        weight: 0 or more.
        probability: probability of choosing a token. Of the chosen tokens, 80 % are replaced by the
            mask token, 10 % by a random token, and 10 % stay. Special tokens are never chosen.
    """

    special_ids: Tensor

    def __init__(self, weight: float, probability: float) -> None:
        super().__init__(weight)
        if not 0 < probability <= 1:
            raise UserError(f"auxiliary.{self.name}.probability={probability}: it must be above 0 and at most 1")
        self.probability = probability

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare the masks, or raise UserError if there is no mask token."""
        tokenizer = encoder.tokenizer
        if tokenizer.mask_token is None:
            model = encoder.backbone.config.name_or_path
            raise UserError(f"auxiliary.{self.name}: the tokenizer of {model} has no mask token")
        self._collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=self.probability)
        self.register_buffer("special_ids", torch.tensor(tokenizer.all_special_ids), persistent=False)

    def mask(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return masked ids and labels for ids [..., tokens]; tokens that were not chosen have the label NOT_CHOSEN."""
        special = torch.isin(input_ids, self.special_ids)
        with input_ids.device:  # where the collator draws
            masked, labels = self._collator.torch_mask_tokens(input_ids.clone(), special_tokens_mask=special)
        return masked, labels
