"""Views that are whole sentences: the sentence itself, or one of the next."""

from dataclasses import dataclass

from simcse_pl.data.views.view import SentenceView, TokenView, ViewInput
from simcse_pl.models.tokenization import Tokens


class Dropout(TokenView):
    """The sentence itself. Only the encoder's dropout makes the two views differ (unsupervised SimCSE, section 3).

    As the only view, it leaves rows of several sentences as they are.
    """

    def make(self, own: ViewInput) -> Tokens:
        """Return the sentence."""
        return own.tokens


@dataclass
class OneOfNextSentences(SentenceView):
    """One of the next sentences of the document, at random (Table 2; Logeswaran and Lee 2018).

    Args:
        n: the number of next sentences to choose from, 1 or 3 in the paper; fewer before the end of a document.
    """

    n: int = 1

    def __post_init__(self) -> None:
        self.num_following = self.n

    def make(self, own: ViewInput) -> str:
        """Return one of the next sentences."""
        return own.random.choice(own.following)
