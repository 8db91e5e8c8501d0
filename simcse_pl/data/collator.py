"""The collator: rows of sentences to one padded batch of views."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import Tokens, tokenize
from simcse_pl.utils.types import Batch

Sentence = str | Tokens  # text, or tokens if they are known


@dataclass(frozen=True)
class ViewCollator:
    """Collates rows into one padded batch of views.

    A row of one sentence gives two equal views, whose embeddings differ by the encoder's dropout (unsupervised SimCSE).
    The views of a longer row are its sentences, in order.

    Args:
        tokenizer: the encoder's tokenizer.
        max_length: the number of tokens read of a sentence, including special tokens but not the template's.
        templates: the encoder's; None for none.
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int
    templates: Templates | None = None

    def __call__(self, rows: Sequence[tuple[Sentence, ...]]) -> Batch:
        """Return tensors [batch, views, tokens]; all rows have the same number of sentences."""
        templates = self.templates or Templates(self.tokenizer)
        if len(rows[0]) == 1 and len(templates.texts) > 1:
            rows = [(sentence, sentence) for (sentence,) in rows]
        inputs = templates.batch(self.tokens_of([sentence for row in rows for sentence in row]), len(rows[0]))
        views = {name: tensor.view(len(rows), len(rows[0]), -1) for name, tensor in inputs.items()}
        return views if len(rows[0]) > 1 else {name: tensor.repeat(1, 2, 1) for name, tensor in views.items()}

    def tokens_of(self, sentences: Sequence[Sentence]) -> list[Tokens | list[int]]:
        """Return the tokens of sentences that are text or tokens."""
        texts = [sentence for sentence in sentences if isinstance(sentence, str)]
        new = iter(tokenize(self.tokenizer, texts, self.max_length) if texts else ())
        return [next(new) if isinstance(sentence, str) else sentence for sentence in sentences]
