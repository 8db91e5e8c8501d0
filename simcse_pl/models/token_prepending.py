"""An encoder whose decoder reads the meaning of a sentence before the sentence (Token Prepending, Fu et al. 2025)."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.layers import changed_layer_outputs
from simcse_pl.models.mean_of_templates import MeanOfTemplates
from simcse_pl.models.pooling import last_token
from simcse_pl.models.templates import SENTENCE
from simcse_pl.utils.types import Backbone, Batch

PLACEHOLDER = "<PST>"


class TokenPrepending(MeanOfTemplates):
    """An encoder of a decoder in which a placeholder before the sentence has the state of the prompt's last token.

    The last token of a prompt such as PromptEOL's stands for the sentence, but a decoder's first tokens cannot attend
    to it. So the first layers copy its state to the placeholder, where all tokens of the next layer attend to it. The
    first layer reads random numbers there, as in the released code.

    It is for evaluation: its saved folder is a SentenceEncoder, which copies nothing.

    Args:
        template: as of MeanOfTemplates. The placeholder `<PST>` is added before the sentence and its quotation mark if
            the template does not have it.
        options: as of SentenceEncoder.

    Attributes:
        first_layer, last_layer: the numbers of the layers, from 1, whose outputs are changed.

    Examples:
        >>> prompt = 'This sentence : "{sentence}" means in one word:"'
        >>> encoder = TokenPrepending.from_pretrained("facebook/opt-125m", "last_token_11", template=prompt)
    """

    first_layer, last_layer = 1, 6

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: PreTrainedTokenizerBase,
        *,
        template: str | Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        tokenizer.add_tokens([PLACEHOLDER])
        self.placeholder = tokenizer.get_vocab()[PLACEHOLDER]
        words: Any = backbone.get_input_embeddings()
        if self.placeholder >= words.num_embeddings:
            words = backbone.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        drawn = torch.randn(words.embedding_dim, generator=torch.Generator().manual_seed(0))
        words.weight.data[self.placeholder] = drawn.to(words.weight)
        texts = [template] if isinstance(template, str) else template or [SENTENCE]
        super().__init__(backbone, tokenizer, template=[_with_placeholder(text) for text in texts], **options)

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *others: Any, first_layer: int = 1, last_layer: int = 6, **options: Any
    ) -> Self:
        """Load a decoder; see `SentenceEncoder.from_pretrained` and the attributes."""
        encoder = super().from_pretrained(name, *others, **options)
        encoder.first_layer, encoder.last_layer = first_layer, last_layer
        return encoder

    def _pool_pass(self, of_backbone: Batch, of_pooling: Batch, num_layers: int | None) -> Tensor:
        is_placeholder = (of_pooling["input_ids"] == self.placeholder).unsqueeze(-1)

        def prepended(states: Tensor) -> Tensor:
            return torch.where(is_placeholder, last_token(states, of_pooling["attention_mask"]).unsqueeze(1), states)

        with changed_layer_outputs(self.backbone, self.first_layer, self.last_layer, prepended):
            return super()._pool_pass(of_backbone, of_pooling, num_layers)


def _with_placeholder(template: str) -> str:
    if PLACEHOLDER in template:
        return template
    return re.sub(r'["“]?' + re.escape(SENTENCE), rf"{PLACEHOLDER} \g<0>", template, count=1)
