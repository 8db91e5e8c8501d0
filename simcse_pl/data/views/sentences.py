"""Views that are whole sentences: the sentence itself, or one of the next sentences."""

from pydantic import PositiveInt

from simcse_pl.data.views.view import SentenceView, ViewInput
from simcse_pl.models.roles import Role
from simcse_pl.models.tokenization import Tokens


class Dropout(SentenceView):
    """The sentence itself. Only the encoder's dropout makes the two views differ (unsupervised SimCSE, section 3).

    If it is the only view, rows that have a positive do not get it.
    """

    def make(self, source: ViewInput) -> Tokens:
        """Return the sentence."""
        return source.tokens


class OneOfNextSentences(SentenceView):
    """One of the next sentences of the document, at random (Table 2; Logeswaran and Lee 2018).

    Args:
        n: the number of next sentences to choose from, 1 or 3 in the paper; fewer before the end of a document.
        role: see View.
    """

    def __init__(self, n: PositiveInt = 1, role: Role = Role.POSITIVE) -> None:
        super().__init__(role)
        self.num_following = n

    def make(self, source: ViewInput) -> str:
        """Return one of the next sentences."""
        return source.random.choice(source.following)
