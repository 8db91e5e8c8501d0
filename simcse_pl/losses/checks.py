"""Checks of rows and heads that several losses share."""

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role, RowKind
from simcse_pl.utils.errors import UserError


def check_contrasted(rows: RowKind, positives: int | None = None, negatives: bool | None = None) -> None:
    """Raise UserError unless rows have one anchor, positives and no labels, which would be ignored.

    Args:
        rows: the rows.
        positives: how many positives there must be; None for one or more.
        negatives: whether there must be hard negatives; None for any number.
    """
    check_views(rows, positives, negatives)
    if rows.labels:
        column = {"classes": "label_column", "scores": "score_column"}[rows.labels]
        raise UserError(f"this loss takes no labels: set data.{column}=null, or another objective")


def check_views(rows: RowKind, positives: int | None = None, negatives: bool | None = None) -> None:
    """Raise UserError unless rows have one anchor and positives; see `check_contrasted`."""
    count = {role: rows.roles.count(role) for role in Role}
    wanted = ["one anchor", "a positive" if positives is None else f"{positives} positive"]
    valid = count[Role.ANCHOR] == 1 and count[Role.POSITIVE] == (positives or max(1, count[Role.POSITIVE]))
    if negatives is not None:
        wanted.append("hard negatives" if negatives else "no negative")
        valid = valid and (count[Role.NEGATIVE] > 0) == negatives
    if not valid:
        raise UserError(f"a row needs {', '.join(wanted)}, not {', '.join(rows.roles)}: change data.roles or views")


def check_pairs(rows: RowKind, labels: LabelKind) -> None:
    """Raise UserError unless rows are pairs with this kind of label."""
    if len(rows.roles) != 2:
        raise UserError(f"this loss takes pairs, but rows have {len(rows.roles)} sentences: name two in data.columns")
    if rows.labels != labels:
        label = {"classes": "label", "scores": "score"}[labels]
        raise UserError(f"this loss needs a {label} for every pair: set data.{label}_column")


def check_head_is_kept(encoder: SentenceEncoder) -> None:
    """Raise UserError if a head makes the vectors of training, and not those of the saved encoder."""
    if encoder.head.endswith("_train_only"):
        raise UserError(
            f"model.head={encoder.head}: the vectors of the saved encoder would not be trained, because this head is "
            "dropped: set model.head=none or mlp"
        )
