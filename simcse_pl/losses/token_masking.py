"""The base class of losses that mask tokens."""

from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor
from transformers import DataCollatorForLanguageModeling

from simcse_pl.losses.loss import Loss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import begins_word
from simcse_pl.utils.errors import UserError, reraise_as

Probability = Annotated[float, Field(gt=0, le=1)]

NOT_CHOSEN = -100  # the label of a token that is not predicted; cross_entropy ignores it


class TokenMaskingLoss(Loss):
    """A loss that masks tokens as BERT's pretraining does (Devlin et al. 2019).

    Args:
        weight: see Loss.
        probability: probability of choosing a token. Of the chosen tokens, 80 % are replaced by the
            mask token, 10 % by a random token, and 10 % stay. Special tokens are never chosen.
        whole_words: choose whole words with this probability in place of single tokens.
    """

    special_ids: Tensor
    begins_word: Tensor

    def __init__(self, weight: NonNegativeFloat, probability: Probability, whole_words: bool = False) -> None:
        super().__init__(weight)
        self.probability, self.whole_words = probability, whole_words

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare the masks, or raise UserError if there is no mask token."""
        tokenizer = encoder.tokenizer
        if tokenizer.mask_token is None:
            model = encoder.backbone.config.name_or_path
            raise UserError(f"the tokenizer of {model} has no mask token")
        probability = 1.0 if self.whole_words else self.probability  # `mask` chooses whole words before the collator
        self._collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=probability)
        self.register_buffer("special_ids", torch.tensor(tokenizer.all_special_ids), persistent=False)
        if self.whole_words:
            with reraise_as("whole_words=true", users_too=True):
                self.register_buffer("begins_word", begins_word(tokenizer), persistent=False)

    def mask(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return masked ids and labels for ids [..., tokens]; tokens that were not chosen have the label NOT_CHOSEN."""
        excluded = torch.isin(input_ids, self.special_ids)
        with input_ids.device:  # where the collator draws
            if self.whole_words:
                excluded |= ~self._choose_words(input_ids, excluded)
            masked, labels = self._collator.torch_mask_tokens(input_ids.clone(), special_tokens_mask=excluded)
        return masked, labels

    def _choose_words(self, input_ids: Tensor, special: Tensor) -> Tensor:
        """Return which tokens belong to a word that is drawn with the probability, [..., tokens]."""
        # A word begins at its first token, and after a special token.
        begins = self.begins_word[input_ids] | special.roll(1, dims=-1)
        word = begins.cumsum(dim=-1).clamp(max=input_ids.shape[-1] - 1)
        drawn = torch.rand(input_ids.shape) < self.probability
        return drawn.gather(-1, word)
