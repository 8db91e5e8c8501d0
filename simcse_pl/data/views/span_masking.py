"""The view that masks a span of tokens (ArcCSE)."""

from simcse_pl.data.views.view import TokenView, ViewInput
from simcse_pl.data.views.words import check_rate
from simcse_pl.models.tokenization import Tokens
from simcse_pl.utils.errors import UserError


class SpanMasking(TokenView):
    """The sentence with one span of its tokens replaced by mask tokens (ArcCSE, Zhang et al. 2022).

    The span begins at a random token, with equal probability. Special tokens are not masked. Of several such views of
    a row, the one with the larger rate masks all tokens that the other one masks.

    Args:
        rate: the fraction of tokens to mask, rounded to the nearest integer.
        role: see View.
    """

    shared_random = True

    def __init__(self, rate: float = 0.2, role: str = "positive") -> None:
        super().__init__(role)
        check_rate(rate)
        self.rate = rate

    def make(self, own: ViewInput) -> Tokens:
        """Return the tokens with the span masked; raise UserError if the tokenizer has no mask token."""
        if own.mask is None:
            raise UserError("views: a span cannot be masked, because the model's tokenizer has no mask token")
        inner = len(own.tokens) - sum(own.special)
        length = round(self.rate * inner)
        start = own.special[0] + int(own.random.random() * (inner - length + 1))
        masked = own.tokens.copy()
        masked[start : start + length] = own.mask
        return masked
