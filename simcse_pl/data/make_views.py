"""Make the views of rows, and try them on the first rows."""

import itertools
import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simcse_pl.data.documents import next_sentences
from simcse_pl.data.view import Dropout, ViewInput
from simcse_pl.models.templates import Templates
from simcse_pl.utils.errors import UserError, prefixed
from simcse_pl.utils.types import Tokens

if TYPE_CHECKING:
    from simcse_pl.data.collator import Sentence, TrainingRows
    from simcse_pl.data.sampler import RowKey

log = logging.getLogger(__name__)

_TRIED = 128  # sentences on which each view is tried
_FEWEST_CHANGED = 1 / 32  # of the sentences tried


def add_views(
    rows: "TrainingRows", keys: "Sequence[RowKey]", positions: Sequence[int], tokens: Sequence[tuple[Tokens, ...]]
) -> "list[tuple[Sentence, ...]]":
    """Return the rows of a batch, each with its views; `tokens` are those of the rows at `positions`."""
    tokenizer, templates = rows.collate.tokenizer, rows.collate.templates or Templates(rows.collate.tokenizer)
    limits = templates.special, tokenizer.model_max_length, tokenizer.mask_token_id
    made: list[Sequence[Sentence]] = []
    for number, (name, view) in enumerate(rows.views.items()):
        inputs = []
        for (epoch, _), position, row in zip(keys, positions, tokens, strict=True):
            seed = f"{rows.seed}-{0 if view.once else epoch}-{position}"
            if number and not view.shared_random:
                seed += f"-{number}"
            following = next_sentences(rows.cache, position, view.num_following)
            inputs.append(ViewInput(rows.cache[position][0], following, random.Random(seed), row[0], *limits))
        sentences: Sequence[Any] = view(inputs)
        columns = [*zip(*sentences, strict=True)] if len(view.roles) > 1 else [sentences]
        for sentence in itertools.chain(*columns):
            if not (isinstance(sentence, str) or _is_tokens(sentence)):
                raise UserError(f"views.{name}: it returned {sentence!r}: return text or token ids")
        made += columns
    return [(*row[: rows.width], *views) for row, *views in zip(tokens, *made, strict=True)]


def _is_tokens(sentence: Any) -> bool:
    ids = np.asarray(sentence)
    return ids.ndim == 1 and (ids.dtype.kind in "iu" or not len(ids))


def check_views(rows: "TrainingRows") -> None:
    """Raise UserError if a view changes hardly any sentence, or does not fit the text; try it on the first rows."""
    count = min(_TRIED, len(rows.chosen))
    keys = [divmod(i, count) for i in range(_TRIED)]  # a few rows are tried in several epochs
    positions = [int(rows.chosen[row]) for _, row in keys]
    tried, anchors = rows.with_views(keys), [row[0] for row in rows.tokens(positions)]
    after = rows.width
    for name, view in rows.views.items():
        column, after = after, after + len(view.roles)
        if isinstance(view, Dropout):
            continue
        with prefixed(f"views.{name}"):
            view.check_text([rows.cache[position][0] for position in positions[:count]])
            made = rows.collate.tokens_of([[row[column]] for row in tried])
            special = sum((rows.collate.templates or Templates(rows.collate.tokenizer)).special)
            if (empty := sum(len(tokens) <= special for tokens in made)) > len(made) / 2:
                raise UserError(f"it makes {empty} of {len(made)} sentences empty")
            changed = sum(not np.array_equal(*both) for both in zip(anchors, made, strict=True))
            if changed < _FEWEST_CHANGED * len(made):
                raise UserError(
                    f"it changes {changed} of {len(made)} sentences: a view of words needs segmenter=icu if there "
                    "are no spaces between words, and a view of case a tokenizer that reads case; token_deletion "
                    "needs neither"
                )
            log.info("views.%s: changes %d of %d sentences", name, changed, len(made))
