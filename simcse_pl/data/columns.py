"""What the columns of a table have, by their names and their first rows."""

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simcse_pl.data.formats import OpenedTable
from simcse_pl.utils.errors import COLUMNS, UserError
from simcse_pl.utils.text import as_number

if TYPE_CHECKING:
    from simcse_pl.data.rows import LabelledRows, Warn

_ROWS_CHECKED = 100  # for columns without sentences
_FEWEST_JUDGED = 20  # rows that show that a column has ids or labels
_ID = re.compile(r"[!-~]*\d[!-~]*")  # such as q-17 or item_3.jpg
_NAMED = {  # columns that are no sentences, by their names; pandas has '' and Unnamed
    "ids": re.compile(r"(?i:|unnamed.*|(.*[\W_])?([qp]?id\d?|idx|index|[gu]uid|编号|序号))|.*[a-z]I[dD]"),
    "labels": re.compile(r"(?i:(gold[\W_]?)?labels?|class(es)?|category|scores?|标签|类别)"),
}
NEGATIVES = re.compile(r"(?i:(hard[\W_]?)?neg(ative)?s?|contradictions?)[\W_]?\d*")
_ROLES = (  # columns of anchors, positives and hard negatives, by their names
    re.compile(r"(?i:anchor|query|question|premise)s?\d*"),
    re.compile(r"(?i:pos(itive)?s?|answers?|entailments?)[\W_]?\d*"),
    NEGATIVES,
)


def check_order(table: OpenedTable, positions: Sequence[int]) -> None:
    """Raise UserError if columns that are read as anchor, positive and hard negatives have names in another order."""
    names = [str(table.name(i)) for i in positions]
    roles = [next((role for role, known in enumerate(_ROLES) if known.fullmatch(name)), None) for name in names]
    known = [role for role in roles if role is not None]
    if known != sorted(known) or roles[1:2] == [_ROLES.index(NEGATIVES)]:
        raise UserError(
            f"{table.source}: the columns {', '.join(names)} would be read as anchor, positive and hard negatives, in "
            f"this order, which their names contradict: give the order by {COLUMNS}"
        )


def what_is_named(column: int | str) -> str:
    """Return what a column has by its name, `ids` or `labels`; empty if it may have sentences."""
    return next((what for what, names in _NAMED.items() if names.fullmatch(str(column))), "")


def checked_rows(
    table: OpenedTable, positions: list[int], rows: "LabelledRows", chosen: bool, warn: "Warn"
) -> "LabelledRows":
    """Yield the rows; raise UserError if a column has no sentences, or warn if it was `chosen` and has no numbers."""
    head = list(itertools.islice(rows, _ROWS_CHECKED))
    for i, cells in zip(positions, zip(*(row for row, _ in head), strict=False), strict=False):
        what = _in_place_of_sentences(table.name(i), cells, chosen)
        if what and chosen and what != "numbers":
            warn(f"{table.source}: column {table.name(i)} has {what}: are these the sentences?")
        elif what:
            labels = "; in training, data.label_column is one of classes, and data.score_column one of scores"
            advice = f"name those of sentences by {COLUMNS}" + labels * (what != "ids")
            raise UserError(f"{table.source}: column {table.name(i)} has {what}, not sentences: {advice}")
    yield from itertools.chain(head, rows)


def _in_place_of_sentences(name: int | str, cells: Sequence[str], chosen: bool) -> str | None:
    """Return what the first cells of a column have in place of sentences, or None."""
    kinds = {*cells} - {""}
    judged = kinds and len(cells) >= _FEWEST_JUDGED
    rows_per_kind = 5 if all(map(str.isascii, kinds)) else 20  # sentences may have no spaces
    if judged and len(kinds) * rows_per_kind <= len(cells) and not any(" " in kind for kind in kinds):
        return f"only words such as {', '.join(sorted(kinds)[:5])}"
    if None not in map(as_number, cells):
        return "numbers"
    if not chosen and (named := what_is_named(name)):
        return named
    return "ids" if judged and all(map(_ID.fullmatch, kinds)) else None
