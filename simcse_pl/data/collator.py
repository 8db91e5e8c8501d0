"""The collator: rows of sentences to one padded batch of views, perhaps with the words that are masked whole."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.words import Segmenter, strip_punctuation
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import BEGINS_WORD, INSIDE_WORD, tokenize
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.types import Batch, Tokens

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
        segment: splits a sentence into the words that are masked whole; None adds no `begins_word` to a batch.
        prompts: the name of each view's prompt, in place of its template (see Templates.batch).
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int
    templates: Templates | None = None
    segment: Segmenter | None = None
    prompts: Sequence[str | None] = ()

    def __call__(self, rows: Sequence[tuple[Sentence, ...]]) -> Batch:
        """Return tensors [batch, views, tokens]; all rows have the same number of sentences."""
        templates = self.templates or Templates(self.tokenizer)
        if len(rows[0]) == 1 and len(self.prompts or templates.texts) > 1:
            rows = [(sentence, sentence) for (sentence,) in rows]
        width = len(rows[0])
        tokens = self.tokens_of([sentence for row in rows for sentence in row])
        inputs = templates.batch(tokens, width, self.prompts)
        if self.segment:
            ids = inputs["input_ids"]
            inputs |= {"input_ids": ids % INSIDE_WORD, BEGINS_WORD: ids < INSIDE_WORD}
        views = {name: tensor.view(len(rows), width, -1) for name, tensor in inputs.items()}
        return views if width > 1 else {name: tensor.repeat(1, 2, 1) for name, tensor in views.items()}

    def tokens_of(self, sentences: Sequence[Sentence]) -> list[Tokens | list[int]]:
        """Return the tokens of sentences that are text or tokens."""
        texts = [sentence for sentence in sentences if isinstance(sentence, str)]
        if self.segment:
            new = iter(tokenize_words(self.tokenizer, texts, self.max_length, self.segment) if texts else ())
        else:
            new = iter(tokenize(self.tokenizer, texts, self.max_length))
        return [next(new) if isinstance(sentence, str) else sentence for sentence in sentences]


def tokenize_words(
    tokenizer: PreTrainedTokenizerBase, sentences: list[str], max_length: int, segment: Segmenter
) -> list[list[int]]:
    """Return token ids as `tokenize` does, plus INSIDE_WORD for a token that continues a word of the segmenter.

    As in BERT, each mark of punctuation around a word is a word. Words that share a token are one word.
    """
    with reraise_as("whole_words=true"):
        encoded = tokenizer(sentences, truncation=True, max_length=max_length, return_offsets_mapping=True)
    marked = []
    for sentence, ids, spans in zip(sentences, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        words = _words_of_characters(sentence, segment)
        before = [None, *(words[end - 1] if end else None for _, end in spans)]  # special tokens have the span (0, 0)
        inside = [start < end and words[start] == word for (start, end), word in zip(spans, before, strict=False)]
        marked.append([number + INSIDE_WORD * is_inside for number, is_inside in zip(ids, inside, strict=True)])
    return marked


def _words_of_characters(sentence: str, segment: Segmenter) -> list[int]:
    """Return where the word of each character begins; white space, which tokens may include, is of the next word."""
    begins, place = [*range(len(sentence))], 0
    for word in map(strip_punctuation, segment(sentence)):
        start = sentence.find(word, place)
        if start < 0:
            raise UserError(f"segmenter: it must split {sentence!r} without changing it, but returns {word!r}")
        place = start + len(word)
        begins[start:place] = [start] * len(word)
    for i in reversed(range(len(sentence) - 1)):
        begins[i] = begins[i + 1] if sentence[i].isspace() else begins[i]
    return begins
