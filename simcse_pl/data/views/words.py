"""Views that remove words (Table 1), and replacing a word within its punctuation.

By default, words are separated by white space, as in the paper; see segmenters.py. A number of words is rounded to the
nearest integer. A sentence of one word, or of none, stays as it is.
"""

import re
import unicodedata
from collections.abc import Sequence

from simcse_pl.data.views.segmenters import Segmenter, spaces
from simcse_pl.data.views.view import Rate, SentenceView, ViewInput
from simcse_pl.models.roles import Role
from simcse_pl.utils.errors import UserError

_ENGLISH = {"the", "and", "with", "from", "this", "that", "are"}  # no common words of other languages
_RAREST = 1 / 32  # share of the sentences with such a word: German and French have 0.4 %, English headlines 12 %
# accents, and the vowel signs of Hindi and Thai, which \w does not match
MARKS = "".join(c for c in map(chr, range(0x1F000)) if unicodedata.category(c).startswith("M"))
_WITHOUT_PUNCTUATION = re.compile(rf"\w(?:.*\w)?[{MARKS}]*", re.DOTALL)  # greedy: a lazy one takes quadratic time


def strip_punctuation(word: str) -> str:
    """Return a word without the punctuation around it.

    Examples:
        >>> strip_punctuation('("Yes!")')
        'Yes'
    """
    return _parts(word)[1]


def replace_word(word: str, new: str) -> str:
    """Return `new` with the punctuation around `word`, capitalized if `word` is.

    Examples:
        >>> replace_word("(Dogs,", "hounds")
        '(Hounds,'
    """
    before, old, after = _parts(word)
    return before + (new[:1].upper() + new[1:] if old[:1].isupper() else new) + after


def check_english(sentences: Sequence[str]) -> None:
    """Raise UserError unless sentences look like English; a view of English rules or words calls it."""
    english = sum(any(strip_punctuation(word).lower() in _ENGLISH for word in text.split()) for text in sentences)
    if english <= _RAREST * len(sentences):
        has = f"{english} of {len(sentences)} sentences have a word such as `the`"
        raise UserError(f"it is made for English, but {has}: use another view, or rules of negation for it")


def _parts(word: str) -> tuple[str, str, str]:
    match = _WITHOUT_PUNCTUATION.search(word)
    return (word[: match.start()], match[0], word[match.end() :]) if match else (word, "", "")


class _RatedView(SentenceView):
    """A view that changes a fraction of a sentence's words.

    Args:
        rate: the fraction of words to remove, k %; at least one word is kept.
        role: see View.
        segment: splits the sentence into words.
    """

    def __init__(self, rate: Rate = 0.1, role: Role = Role.POSITIVE, segment: Segmenter = spaces) -> None:
        super().__init__(role)
        self.rate, self.segment = rate, segment


class Crop(_RatedView):
    """A contiguous span of the sentence's words, at a random position (Table 1)."""

    def make(self, source: ViewInput) -> str:
        """Return the span."""
        words = self.segment(source.sentence)
        length = max(min(1, len(words)), len(words) - round(self.rate * len(words)))
        start = source.random.randint(0, len(words) - length)
        return "".join(words[start : start + length]).strip()


class WordDeletion(_RatedView):
    """The sentence without some of its words, chosen at random (Table 1)."""

    def make(self, source: ViewInput) -> str:
        """Return the remaining words, in order."""
        words = self.segment(source.sentence)
        return _delete(source, words, round(self.rate * len(words)))


class DeleteOneWord(SentenceView):
    """The sentence without one of its words, chosen at random (Tables 1 and 2).

    Args:
        role: see View.
        segment: splits the sentence into words.
    """

    def __init__(self, role: Role = Role.POSITIVE, segment: Segmenter = spaces) -> None:
        super().__init__(role)
        self.segment = segment

    def make(self, source: ViewInput) -> str:
        """Return the remaining words, in order."""
        return _delete(source, self.segment(source.sentence), 1)


def _delete(source: ViewInput, words: list[str], count: int) -> str:
    kept = source.random.sample(range(len(words)), max(min(1, len(words)), len(words) - count))
    return "".join(words[i] for i in sorted(kept)).strip()
