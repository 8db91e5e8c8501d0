"""Views that remove, repeat or change words (Table 1; ESimCSE; CARDS), and replacing a word within its punctuation.

Words are separated by white space, as in the paper (princeton-nlp/SimCSE, issue 231). A number of words is rounded to
the nearest integer. A sentence of one word, or of none, stays as it is.
"""

import re

from simcse_pl.data.views.view import SentenceView, ViewInput
from simcse_pl.utils.errors import UserError

_WITHOUT_PUNCTUATION = re.compile(r"\w(?:.*\w)?", re.DOTALL)  # greedy: a lazy one takes quadratic time


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


def _parts(word: str) -> tuple[str, str, str]:
    match = _WITHOUT_PUNCTUATION.search(word)
    return (word[: match.start()], match[0], word[match.end() :]) if match else (word, "", "")


def check_rate(rate: float, option: str = "rate") -> None:
    """Raise UserError unless the fraction of words that a view changes is above 0 and at most 1."""
    if not 0 < rate <= 1:
        raise UserError(f"{option}={rate}: it must be above 0 and at most 1")


class _RatedView(SentenceView):
    """A view that changes a fraction of a sentence's words, the rate."""

    def __init__(self, rate: float = 0.1, role: str = "positive") -> None:
        super().__init__(role)
        check_rate(rate)
        self.rate = rate


class Crop(_RatedView):
    """A contiguous span of the sentence's words, at a random position (Table 1).

    Args:
        rate: the fraction of words to remove, k %; at least one word is kept.
    """

    def make(self, own: ViewInput) -> str:
        """Return the span."""
        words = own.sentence.split()
        length = max(min(1, len(words)), len(words) - round(self.rate * len(words)))
        start = own.random.randint(0, len(words) - length)
        return " ".join(words[start : start + length])


class WordDeletion(_RatedView):
    """The sentence without some of its words, chosen at random (Table 1).

    Args:
        rate: the fraction of words to delete, k %; at least one word is kept.
    """

    def make(self, own: ViewInput) -> str:
        """Return the remaining words, in order."""
        return _delete(own, round(self.rate * len(own.sentence.split())))


class DeleteOneWord(SentenceView):
    """The sentence without one of its words, chosen at random (Tables 1 and 2)."""

    def make(self, own: ViewInput) -> str:
        """Return the remaining words, in order."""
        return _delete(own, 1)


class WordRepetition(_RatedView):
    """The sentence with some of its words repeated, so that its length is less informative (ESimCSE, Wu et al. 2022).

    The number of repeated words is drawn uniformly from 0 to max(2, rate * N), for N words, and is below N.
    `TokenRepetition` repeats subwords.

    Args:
        rate: the largest fraction of words to repeat, 0.32 in the paper.
    """

    def __init__(self, rate: float = 0.32, role: str = "positive") -> None:
        super().__init__(rate, role)

    def make(self, own: ViewInput) -> str:
        """Return the words in order, some of them twice."""
        words = own.sentence.split()
        most = max(0, min(max(2, int(self.rate * len(words))), len(words) - 1))
        repeated = set(own.random.sample(range(len(words)), own.random.randint(0, most)))
        return " ".join(f"{word} {word}" if i in repeated else word for i, word in enumerate(words))


class SwitchCase(SentenceView):
    """The sentence with the first letter of some words in the other case (CARDS, Wang et al. 2022, 3.1).

    In plain terms: a cased tokenizer gives other tokens for `continues` and `Continues`, whose meanings are the same. A
    word that does not begin with a letter stays as it is.

    Args:
        probability: the probability of each word to be switched, or the fraction of words that are.
        independent: whether words are switched independently. If not, the number of words is rounded to the nearest
            integer, but at least 1.
        role: see View.

    Raises:
        UserError: the probability is not above 0 and at most 1.
    """

    changes_case = True

    def __init__(self, probability: float = 0.05, independent: bool = True, role: str = "positive") -> None:
        super().__init__(role)
        check_rate(probability, "probability")
        self.probability, self.independent = probability, independent

    def make(self, own: ViewInput) -> str:
        """Return the words in order, some of them in the other case."""
        words = own.sentence.split()
        switchable = [i for i, word in enumerate(words) if word[0].isalpha()]
        if self.independent:
            switched = [i for i in switchable if own.random.random() < self.probability]
        else:
            count = max(1, round(len(words) * self.probability))
            switched = own.random.sample(switchable, min(count, len(switchable)))
        for i in switched:
            first = words[i][0]
            words[i] = (first.upper() if first.islower() else first.lower()) + words[i][1:]
        return " ".join(words)


def _delete(own: ViewInput, count: int) -> str:
    words = own.sentence.split()
    kept = own.random.sample(range(len(words)), max(min(1, len(words)), len(words) - count))
    return " ".join(words[i] for i in sorted(kept))
