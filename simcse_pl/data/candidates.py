"""Rows with a prompt, or with any number of positives and hard negatives: reading them, and drawing a batch of them."""

import random
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

from simcse_pl.data.formats import OpenedTable, Records
from simcse_pl.utils.types import Role

COLUMNS = ("query", "pos", "neg")  # of FlagEmbedding's files


def with_prompts(records: Records, prompt: int, anchor: int) -> Records:
    """Yield records whose anchors, unless they are empty, follow their prompts; NaN is no prompt."""
    for location, cells in records:
        row_prompt = cells[prompt] if not isinstance(cells, str) and max(prompt, anchor) < len(cells) else None
        if isinstance(row_prompt, str) and row_prompt and (text := cells[anchor]):
            texts = text if isinstance(text, list) else [text]
            prompted = [f"{row_prompt}{one}" if one else one for one in texts]
            cells = [*cells[:anchor], prompted if isinstance(text, list) else prompted[0], *cells[anchor + 1 :]]
        yield location, cells


def read_candidates(
    table: OpenedTable, cells: Sequence[Any], columns: Sequence[int], roles: Sequence[Role]
) -> tuple[tuple[str, ...], str]:
    """Return the anchor, the positives and the hard negatives of a row, and the number of its positives as text.

    A cell has a sentence, a list of them, or nothing. A sentence is a candidate once, and a positive if it is both.

    Args:
        table: the file.
        cells: the row.
        columns: the positions of the cells to read.
        roles: the role of each of these columns.

    Raises:
        ValueError: the row has no anchor, several ones, or no positive.
    """
    found: dict[Role, list[str]] = {role: [] for role in Role}
    for column, role in zip(columns, roles, strict=True):
        texts = cell if isinstance(cell := cells[column], list) else [cell]
        found[role] += filter(None, [table.text(column, "" if text is None else text, True) for text in texts])
    anchors, positives = found[Role.ANCHOR], list(dict.fromkeys(found[Role.POSITIVE]))
    negatives = [text for text in dict.fromkeys(found[Role.NEGATIVE]) if text not in positives]
    if len(anchors) != 1 or not positives:
        raise ValueError(f"{len(anchors)} anchors and {len(positives)} positives, where there should be one and some")
    return (*anchors, *positives, *negatives), str(len(positives))


def draw_candidates(sentences: int, positives: int, counts: tuple[int, int], seed: str) -> list[int]:
    """Return the positions in a row of the sentences that are in a batch: the anchor, positives, hard negatives.

    If there are too few, they repeat in turn. In place of hard negatives that a row does not have, positives repeat.

    Args:
        sentences: the number of sentences of the row.
        positives: the number of its positives, which follow the anchor.
        counts: how many positives and hard negatives to draw.
        seed: seed of the draw.
    """
    generator = random.Random(seed)
    drawn = [0]
    for pool, count in zip((range(1, 1 + positives), range(1 + positives, sentences)), counts, strict=True):
        chosen = generator.sample(pool, min(count, len(pool))) or drawn[1:]
        drawn += islice(cycle(chosen), count)
    return drawn
