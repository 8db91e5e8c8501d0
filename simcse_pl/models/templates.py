"""Templates: prompts around a sentence, such as 'This sentence : "{sentence}" means [MASK] .' (PromptBERT, Jiang et al.
2022). They are added after truncation, so that a long sentence never loses its prompt: to token ids, or to the text of
these ids. A template may have the sentence twice, as in Echo (Springer et al. 2024): the second occurrence can attend
to all of the first. Prompts with names, such as `query`, take the place of the template where they are asked for. If a
tokenizer gives a prompt and a sentence other ids together than apart, the prompt is added to the text, as
sentence-transformers does.
"""

import functools
import itertools
import logging
import operator
import re
import string
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.backbone import longest_input
from simcse_pl.models.tokenization import EXAMPLES, SENTENCE_MASK, tokenize, unknown_text
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Backbone, Batch, Tokens

log = logging.getLogger(__name__)

SENTENCE = "{sentence}"

TemplateBias = Literal["none", "train_only", "always", "padded_train_only"]
TemplateAsText = Literal["never", "test_only", "always"]
_MASK = re.compile(r"\[MASK\]|<mask>")
_NO_LIMIT = 2**31 - 1  # tokens
_JOINED = 8  # a template and a sentence have at most so many more tokens as one text than apart
_BATCHES_SORTED_TOGETHER = 128  # the tokens of all sentences at once would take much memory
_MARKS = f"{string.punctuation}\n–—…“”‘’„«»¿¡。，、：；！？（）《》【】「」『』～·"
# beginnings of sentences, some of which a tokenizer may join with the end of a prompt
_EXAMPLES = ["", "A man", "the", "'s", "1998", "été", "你好", *string.ascii_lowercase, *(f"{mark}a" for mark in _MARKS)]


@dataclass(frozen=True, eq=False)
class _Template:
    """The texts before, between and after the occurrences of the sentence, their tokens, and when they are joined."""

    texts: Sequence[str] = ("", "")
    parts: Sequence[Tokens] = (np.empty(0, np.int64),) * 2
    as_text: TemplateAsText = "never"
    is_prefix: bool = True
    occurrences: int = 1  # how often the template has the sentence
    length: int = 0  # tokens, without those of the sentence
    length_after: int = 0  # tokens after the last occurrence of the sentence

    def joins(self, in_training: bool) -> bool:
        """Return whether template and sentence are tokenized as one text."""
        return self.as_text == "always" or (self.as_text == "test_only" and not in_training)


_PLAIN = _Template()


class Templates:
    """The templates and the prompts of an encoder, and the batches of sentences in them.

    Args:
        tokenizer: the encoder's tokenizer.
        template: a text with the placeholder {sentence}, once or several times; a list of such texts, one per view of a
            training row; or None. Later views use the last text of the list, and sentences outside of training the
            first. [MASK] and <mask> are the tokenizer's mask token.
        with_sentence_mask: whether all batches have a `sentence_mask`, of the last occurrence of the sentence. With
            several templates, batches of several views always have one.
        final_period: whether `tokens_of` appends a period to sentences that do not end in one (see `_ends`).
        as_text: when a template and the sentence are tokenized as one text, not apart.
        prompts: by name, texts before the sentence, or templates.

    Attributes:
        texts: the templates; empty if there are none.
        special: the numbers of special tokens before and after a sentence.
        multiple_of: batches are padded to a multiple of this number of tokens, 1 at first.

    Raises:
        UserError: a template has no placeholder, or it has [MASK] or <mask> and the tokenizer has no mask token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        template: str | Sequence[str] | None = None,
        with_sentence_mask: bool = False,
        final_period: bool = False,
        as_text: TemplateAsText = "never",
        prompts: Mapping[str, str] | None = None,
    ) -> None:
        self.tokenizer, self.as_text, self.prompts = tokenizer, as_text, dict(prompts or {})
        self.texts = [] if template is None else [template] if isinstance(template, str) else list(template)
        self.with_sentence_mask, self.final_period = with_sentence_mask, final_period
        self.multiple_of = 1
        empty, word = tokenize(tokenizer, ["", "a"], 512)
        leading = [*map(operator.eq, empty, word), False].index(False)
        self.special = leading, len(empty) - leading
        self._of_views = [self._template(text) for text in self.texts]
        self._of_prompts: dict[str | None, _Template] = {None: self._of_views[0] if self.texts else _PLAIN}
        for name, text in self.prompts.items():
            prompt = self._template(text if SENTENCE in text else text + SENTENCE)
            joined = prompt.is_prefix and self._has_other_ids(prompt)
            self._of_prompts[name] = replace(prompt, as_text="always") if joined else prompt
        self._all = [*self._of_views[1:], *self._of_prompts.values()]

    def _template(self, text: str) -> _Template:
        if SENTENCE not in text:
            raise UserError(f"template={text!r}: a template is a text that has {SENTENCE}")
        mask = self.tokenizer.mask_token
        if mask is None and (match := _MASK.search(text)):
            raise UserError(f"template={text!r}: the tokenizer has no mask token; remove {match[0]}")
        *before, last = _MASK.sub(mask or "", text).split(SENTENCE)
        parts = [*(part.rstrip() for part in before), last]
        tokens = [np.array(self.tokenizer(part, add_special_tokens=False)["input_ids"], np.int64) for part in parts]
        is_prefix, length = len(before) == 1 and not last, sum(map(len, tokens))
        return _Template([*before, last], tokens, self.as_text, is_prefix, len(before), length, len(tokens[-1]))

    def _has_other_ids(self, template: _Template) -> bool:
        """Return whether a prefix and a sentence have other ids as one text than apart."""
        joined = tokenize(self.tokenizer, [template.texts[0] + sentence for sentence in _EXAMPLES], 512)
        apart = tokenize(self.tokenizer, _EXAMPLES, 512)
        return joined != [np.concatenate(self._applied(ids, template)).tolist() for ids in apart]

    def check_prompt(self, name: str | None) -> None:
        """Raise UserError unless a prompt has this name; None is the template, or none."""
        if name not in self._of_prompts:
            names = ", ".join(self.prompts) or "none: give it prompts, such as {query: 'query: '}"
            raise UserError(f"prompt_name={name}: the encoder has no such prompt; it has {names}")

    def check_uses(self, pooling: str, masks: int, bias: TemplateBias, ignores_padding: bool) -> None:
        """Raise UserError unless the templates have as many mask tokens as a pooling reads, and fit a template_bias."""
        mask = self.tokenizer.mask_token_id
        if masks > min(sum(np.count_nonzero(part == mask) for part in template.parts) for template in self._all):
            option = f"template={self.texts or 'null'}"
            raise UserError(f"pooling={pooling}: it needs {masks} [MASK] in every template, but {option}")
        if bias != "none" and (not self.texts or any(template.occurrences != 1 for template in self._all)):
            raise UserError(f"template_bias={bias}: it needs a template that has the sentence once")
        if bias != "none" and not ignores_padding:
            raise UserError(f"template_bias={bias}: the model does not ignore masked tokens; set it to none")

    @property
    def prefixes(self) -> dict[str | None, str | None]:
        """The prefix of each prompt by its name, and under None that of the first template.

        It is None if text follows the sentence, or if both are tokenized apart and have other ids as one text.
        """
        return {
            name: one.texts[0] if one.is_prefix and (one.joins(False) or not self._has_other_ids(one)) else None
            for name, one in self._of_prompts.items()
        }

    def reads_text(self, prompts: Sequence[str | None]) -> bool:
        """Return whether training decodes tokens to join them with these prompts, or without prompts with templates."""
        chosen = [self._of_prompts[name] for name in prompts] or self._of_views
        return any(one.joins(in_training=True) for one in chosen)

    @property
    def longest_around(self) -> int:
        """The most tokens of the first template or a prompt."""
        return max(template.length for template in self._of_prompts.values())

    def most_kinds(self, sentences: int, width: int) -> int:
        """Return an upper bound of the distinct pairs (template, sentence length) in a batch [sentences, width]."""
        if any(one.as_text != "never" for one in self._all):  # a template's tokens depend on the sentence
            return sentences
        longest = (width - sum(self.special) - template.length for template in self._all)
        return min(sentences, sum(max(0, length + 1) for length in longest))

    def longest_sentence(self, limit: int) -> int:
        """Return the most tokens of a sentence, special tokens included, that leave room for every template."""
        special = sum(self.special)
        limit -= _JOINED * any(one.as_text != "never" and not one.is_prefix for one in self._all)
        return special + min((limit - special - one.length) // one.occurrences for one in self._all)

    def checked_length(self, max_length: int | None, backbone: Backbone) -> int:
        """Return the most tokens to read of a sentence, special tokens included; raise UserError if out of range.

        None takes the backbone's limit, at most 512.
        """
        limit = longest_input(backbone) or self.tokenizer.model_max_length
        longest, shortest = self.longest_sentence(limit), sum(self.special) + 1
        if max_length is None:
            max_length = min(longest, self.tokenizer.model_max_length, 512)
        if not shortest <= max_length <= longest:
            within = " in the template" if self.texts or self.prompts else ""
            raise UserError(f"max_length={max_length}: this model reads {shortest} to {longest} tokens{within}")
        return max_length

    def tokens_of(self, sentences: Sequence[str], max_length: int, prompt_name: str | None = None) -> list[list[int]]:
        """Return the token ids of sentences that are not for training; with its prompt, each has the same limit.

        They include a prefix that is tokenized with the sentence.
        """
        if self.final_period:
            sentences = [text if _ends(text) else f"{text}." for text in sentences]
        tokens, limit = self._tokens_of(sentences, max_length, prompt_name)
        if unknown := unknown_text(self.tokenizer, tokens):
            _warn_once(unknown)
        if max(map(len, tokens), default=0) >= limit:
            _warn_once(f"some sentences have max_length={max_length} tokens or more; what is beyond is cut off")
        return tokens

    def examples(self, max_length: int) -> Batch:
        """Return a batch of two sentences of different length, to find out what an encoder does with them."""
        return self.batch(self._tokens_of(EXAMPLES, max_length)[0])

    def _tokens_of(
        self, sentences: Sequence[str], max_length: int, prompt_name: str | None = None
    ) -> tuple[list[list[int]], int]:
        """Return the token ids of sentences, and their largest number."""
        template = self._of_prompts[prompt_name]
        if template.is_prefix and template.joins(in_training=False):
            texts, spare = [template.texts[0] + sentence for sentence in sentences], self.longest_around
        else:
            texts = list(sentences)
            spare = self.longest_around - template.length if template.occurrences == 1 else 0
        return tokenize(self.tokenizer, texts, max_length + spare), max_length + spare

    def batch(
        self,
        tokens: Sequence[Tokens | Sequence[int]],
        views: int | None = None,
        prompts: Sequence[str | None] | None = None,
    ) -> Batch:
        """Return padded tensors [n, longest] of sentences in their templates.

        Args:
            tokens: of each sentence, truncated, including special tokens. Sentence i is view i % views of its row.
            views: the number of views in a row of training; None for sentences of `tokens_of`.
            prompts: the name of each view's prompt, or without `views` of each sentence's, in place of its template.
                Later ones use the last name. A name None is the first template.
        """
        if views and self.texts and not prompts:
            chosen = self._of_views
        else:
            chosen = [self._of_prompts[name] for name in prompts or [None]]
        which = np.minimum(np.arange(len(tokens)) % (views or len(tokens)), len(chosen) - 1)
        sizes = [(template.length, template.length_after, template.occurrences) for template in chosen]
        around, after, times = np.array(sizes)[which].T  # of each sentence's template
        special, lengths = sum(self.special), np.array([*map(len, tokens)], np.int64)
        pieces: Sequence[Tokens | Sequence[int]] = tokens
        if chosen != [_PLAIN]:
            templates = [chosen[number] for number in which.tolist()]
            if any(one.joins(in_training=views is not None) for one in chosen):
                pieces = self._joined(tokens, templates, views is not None)
                lengths = np.array([*map(len, pieces)])
            else:
                pieces = [*itertools.chain.from_iterable(map(self._applied, tokens, templates))]
                lengths = special + around + (lengths - special) * times
        longest = lengths.max(initial=1)  # a decoder's tokenizer makes no token of an empty sentence
        positions = np.arange(-(-longest // self.multiple_of) * self.multiple_of)
        attended = positions < lengths[:, None]
        ids = np.full(attended.shape, self.tokenizer.pad_token_id, dtype=np.int64)
        ids[attended] = np.concatenate(pieces, dtype=np.int64, casting="unsafe")  # an empty list is of floats
        arrays = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": attended.astype(np.int64)}
        inputs = {name: torch.from_numpy(arrays[name]) for name in self.tokenizer.model_input_names}
        if self.with_sentence_mask or ((views or 1) > 1 and len(chosen) > 1):
            ends = lengths - self.special[1] - after
            starts = ends - (lengths - special - around) // times
            in_sentence = (starts[:, None] <= positions) & (positions < ends[:, None])
            inputs[SENTENCE_MASK] = torch.from_numpy(in_sentence.astype(np.int64))
        return inputs

    def text_of(self, view: int) -> str:
        """Return the template of a view."""
        return self.texts[min(view, len(self.texts) - 1)]

    def _applied(self, tokens: Tokens | Sequence[int], template: _Template) -> list[Tokens | Sequence[int]]:
        """Return the pieces of a sentence in a template, between the leading and the trailing special tokens."""
        start, end = self.special[0], len(tokens) - self.special[1]
        parts = [tokens[:start], template.parts[0]]
        for part in template.parts[1:]:
            parts += [tokens[start:end], part]
        return [*parts, tokens[end:]]

    def _joined(
        self, tokens: Sequence[Tokens | Sequence[int]], templates: Sequence[_Template], in_training: bool
    ) -> list[Tokens | Sequence[int]]:
        """Return the tokens of sentences in their templates. Some templates are tokenized with the sentence.

        The text of a sentence is that of its tokens, without the space that some tokenizers add. With a prefix, the
        text is truncated as by `tokens_of`, which adds the prefix before. So a sentence that is cut in training may
        have a few tokens less than there: a cut character is left out, and the prefix may join with the first word.
        """
        (before, after), pieces = self.special, list(tokens)
        as_text = [i for i, one in enumerate(templates) if one.joins(in_training)]
        for i in {*range(len(pieces))}.difference(as_text):
            pieces[i] = np.concatenate(self._applied(tokens[i], templates[i]))
        as_text = [i for i in as_text if in_training or not templates[i].is_prefix]
        inner = [[*tokens[i][before : len(tokens[i]) - after]] for i in as_text]
        decode = functools.partial(self.tokenizer.decode, clean_up_tokenization_spaces=False)
        decoded = (str(decode(ids)).lstrip().rstrip("\ufffd") for ids in inner)  # the last character may be cut
        texts = [text.join(templates[i].texts) for text, i in zip(decoded, as_text, strict=True)]
        joined = tokenize(self.tokenizer, texts, _NO_LIMIT)
        limit = self.tokenizer.model_max_length + self.longest_around
        for i, ids in zip(as_text, joined, strict=True):
            too_many = max(0, len(ids) - limit) * templates[i].is_prefix
            pieces[i] = [*ids[: len(ids) - after - too_many], *ids[len(ids) - after :]]
        return pieces


def with_newlines(given: Any) -> Any:
    """Return a text, or those of a list or mapping, with a newline for each backslash and n of a command line."""
    if isinstance(given, Mapping):
        return {name: with_newlines(text) for name, text in given.items()}
    return given.replace(r"\n", "\n") if isinstance(given, str) else given and [*map(with_newlines, given)]


def _ends(text: str) -> bool:
    """Return whether a text is empty or ends in punctuation; PromptBERT's evaluation knows none beyond ASCII."""
    last = text[-1:]
    return last in ".?\"'" or (not last.isascii() and unicodedata.category(last).startswith("P"))


def sorted_batches(
    sentences: Sequence[str], templates: Templates, batch_size: int, max_length: int, prompt_name: str | None = None
) -> Iterator[tuple[list[int], Batch]]:
    """Yield batches of sentences of similar length, the longest first within every 128 batches.

    A batch is the indices of its sentences, and their padded tokens in a prompt.
    """
    many = batch_size * _BATCHES_SORTED_TOGETHER
    for begin in range(0, len(sentences), many):
        tokens = templates.tokens_of(sentences[begin : begin + many], max_length, prompt_name)
        order = sorted(range(len(tokens)), key=lambda i: -len(tokens[i]))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            yield [begin + i for i in rows], templates.batch([tokens[i] for i in rows], prompts=[prompt_name])


@functools.cache
def _warn_once(message: str) -> None:
    log.warning(message)
