"""Views that drop or repeat words (Table 1; ESimCSE).

A word is what stands between spaces, as in the paper (princeton-nlp/SimCSE, issue 231). Numbers of words are rounded
to the nearest. A sentence of one word stays as it is.
"""

from simcse_pl.data.views.view import Original, SentenceView
from simcse_pl.utils.errors import UserError


def checked_share(share: float) -> float:
    """The share of a sentence's words that a view changes.

    Raises:
        UserError: it is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise UserError(f"views.share={share}: it must be above 0 and below 1")
    return share


class Crop(SentenceView):
    """A contiguous span of the sentence's words, anywhere in it (Table 1's crop).

    Args:
        share: of the words that are cut away, k %; at least one word is kept.

    Raises:
        UserError: a share out of range.
    """

    def __init__(self, share: float = 0.1) -> None:
        self.share = checked_share(share)

    def positive(self, original: Original) -> str:
        """The span."""
        words = original.sentence.split()
        length = max(1, len(words) - round(self.share * len(words)))
        start = original.random.randint(0, len(words) - length)
        return " ".join(words[start : start + length])


class WordDeletion(SentenceView):
    """The sentence without some of its words, wherever they stand (Table 1's word deletion).

    Args:
        share: of the words that are deleted, k %; at least one word is kept.

    Raises:
        UserError: a share out of range.
    """

    def __init__(self, share: float = 0.1) -> None:
        self.share = checked_share(share)

    def positive(self, original: Original) -> str:
        """The words that are left, in their order."""
        return _without(original, round(self.share * len(original.sentence.split())))


class DeleteOneWord(SentenceView):
    """The sentence without one of its words (Tables 1 and 2)."""

    def positive(self, original: Original) -> str:
        """The words that are left, in their order."""
        return _without(original, 1)


class WordRepetition(SentenceView):
    """The sentence with some of its words said twice, so that its length tells less (ESimCSE, Wu et al. 2022, 3.1).

    Of N words, 0 to max(2, rate * N) are repeated, each number as likely as another; never all of them. ESimCSE also
    repeats subwords, which a view of text cannot.

    Args:
        rate: the largest share of the words that is repeated, 0.32 in the paper.

    Raises:
        UserError: a rate out of range.
    """

    def __init__(self, rate: float = 0.32) -> None:
        if not 0 < rate <= 1:
            raise UserError(f"views.rate={rate}: it must be above 0 and at most 1")
        self.rate = rate

    def positive(self, original: Original) -> str:
        """The words, some of them twice, in their order."""
        words = original.sentence.split()
        most = min(max(2, int(self.rate * len(words))), len(words) - 1)
        repeated = set(original.random.sample(range(len(words)), original.random.randint(0, most)))
        return " ".join(f"{word} {word}" if i in repeated else word for i, word in enumerate(words))


def _without(original: Original, count: int) -> str:
    """The sentence without `count` of its words, or all of them but one."""
    words = original.sentence.split()
    kept = original.random.sample(range(len(words)), max(1, len(words) - count))
    return " ".join(words[i] for i in sorted(kept))
