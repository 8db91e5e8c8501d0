"""What the columns of a table have, by their names and their first rows."""

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcse_pl.data.formats import OpenedTable
from simcse_pl.utils.errors import COLUMNS, UserError
from simcse_pl.utils.text import as_number

if TYPE_CHECKING:
    from simcse_pl.data.rows import LabelledRows

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


def with_sentences(table: OpenedTable, positions: list[int], rows: "LabelledRows", chosen: Any) -> "LabelledRows":
    """Yield the rows; raise an error if a column has only numbers or, unless it was chosen, ids or a few words."""
    head = list(itertools.islice(rows, _ROWS_CHECKED))
    judged = len(head) >= _FEWEST_JUDGED and not chosen
    for i, sentences in zip(positions, zip(*(row for row, _ in head), strict=False), strict=False):
        name, kinds = table.name(i), {*sentences} - {""}
        named = "" if name in chosen or i in chosen else what_is_named(name)
        rows_per_kind = 5 if all(map(str.isascii, kinds)) else 20  # sentences may have no spaces
        few = judged and 0 < len(kinds) * rows_per_kind <= len(head) and not any(" " in kind for kind in kinds)
        ids = judged and bool(kinds) and all(map(_ID.fullmatch, kinds))
        numbers = None not in map(as_number, sentences)
        if named or few or ids or numbers:
            words = f"only words such as {', '.join(sorted(kinds)[:5])}"
            what = words if few else "numbers" if numbers else named or "ids"
            labels = "; in training, data.label_column is one of classes, and data.score_column one of scores"
            advice = f"name those of sentences by {COLUMNS}" + labels * (what != "ids")
            raise UserError(f"{table.source}: column {name} has {what}, not sentences: {advice}")
    yield from itertools.chain(head, rows)
