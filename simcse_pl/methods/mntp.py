"""Masked next token prediction, the stage of LLM2Vec (BehnamGhader et al. 2024) before SimCSE."""

from typing import Any

from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from simcse_pl.losses.mlm import NOT_CHOSEN, MaskedLanguageModeling, Probability
from simcse_pl.utils.types import Batch


class MaskedNextTokenPrediction(MaskedLanguageModeling):
    """The loss of predicting masked tokens from the tokens before them (LLM2Vec, BehnamGhader et al. 2024).

    In plain terms: a decoder without its causal mask must learn to use the tokens that it did not see before. It
    predicts a masked token as in its pretraining, from the state of the token before it. The first token of a sentence
    is never predicted. The head is the decoder's own.

    Args:
        probability: probability of choosing a token.
        masked: share of the chosen tokens that are masked; of the others, half become random tokens, and half stay.
        mask_token: the token that hides others, for a tokenizer without a mask token. It is never chosen.
        masking: other arguments of MaskedLanguageModeling.
    """

    language_model = AutoModelForCausalLM

    def __init__(
        self, probability: Probability = 0.2, masked: Probability = 0.8, mask_token: str = "_", **masking: Any
    ) -> None:
        super().__init__(probability=probability, **masking)
        self.masked, self.mask_token = masked, mask_token

    def mask(self, input_ids: Tensor, begins_word: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return masked ids and labels. The first label of each sequence is NOT_CHOSEN: no state is before it."""
        masked, labels = super().mask(input_ids, begins_word)
        labels[..., 0] = NOT_CHOSEN
        return masked, labels

    def states(self, backbone: PreTrainedModel, inputs: Batch) -> Tensor:
        """Return for each token the state of the token before it, [sequences, tokens, dim]."""
        return super().states(backbone, inputs).roll(1, dims=1)
