"""Views that are whole sentences: the sentence itself, or one of the next."""

from simcse_pl.data.views.view import SentenceView, ViewInput


class Dropout(SentenceView):
    """The sentence itself. Only the encoder's dropout makes the two views differ (unsupervised SimCSE, section 3)."""

    def positive(self, own: ViewInput) -> str:
        """Return the sentence."""
        return own.sentence


class OneOfNextSentences(SentenceView):
    """One of the next sentences of the document, at random (Table 2; Logeswaran and Lee 2018).

    Args:
        n: the number of next sentences to choose from, 1 or 3 in the paper; fewer before the end of a document.
    """

    def __init__(self, n: int = 1) -> None:
        self.num_following = n

    def positive(self, own: ViewInput) -> str:
        """Return one of the next sentences."""
        return own.random.choice(own.following)
