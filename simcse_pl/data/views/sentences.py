"""Views that are whole sentences: the sentence itself, or one that follows it."""

from typing import ClassVar

from simcse_pl.data.views.view import Original, SentenceView


class Dropout(SentenceView):
    """The sentence itself: the encoder's dropout alone tells the two views apart. Unsupervised SimCSE, section 3."""

    def positive(self, original: Original) -> str:
        """The sentence."""
        return original.sentence


class NextSentence(SentenceView):
    """The sentence that follows in the document (Table 2; Logeswaran and Lee 2018)."""

    following: ClassVar[int] = 1

    def positive(self, original: Original) -> str:
        """The next sentence."""
        return original.following[0]


class Next3Sentences(SentenceView):
    """One of the three sentences that follow, or of the one or two that a document's end leaves (Table 2)."""

    following: ClassVar[int] = 3

    def positive(self, original: Original) -> str:
        """One of the following sentences, at random."""
        return original.random.choice(original.following[:3])
