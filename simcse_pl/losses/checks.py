"""Checks that several objectives and auxiliary losses share."""

from collections.abc import Sequence

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import LabelKind, Role
from simcse_pl.utils.errors import UserError


def check_one_anchor(roles: Sequence[Role]) -> None:
    """Raise UserError unless rows have one anchor."""
    if (anchors := list(roles).count(Role.ANCHOR)) != 1:
        raise UserError(f"data.roles={[str(role) for role in roles]}: a row needs one anchor, not {anchors}")


def check_anchor_and_positive(roles: Sequence[Role], loss: str) -> None:
    """Raise UserError, which names the loss, unless rows have one anchor and at least one positive."""
    check_one_anchor(roles)
    if Role.POSITIVE not in roles:
        raise UserError(f"{loss} needs a positive: name one in data.roles, or set views=dropout")


def check_pairs(roles: Sequence[Role], labels: LabelKind | None, kind: LabelKind, objective: str) -> None:
    """Raise UserError, with the objective's name in conf/objective, unless rows are pairs with one kind of label."""
    if len(roles) != 2:
        raise UserError(
            f"objective={objective} takes pairs, but rows have {len(roles)} sentences: name two in data.columns"
        )
    if labels != kind:
        label = {"classes": "label", "scores": "score"}[kind]
        raise UserError(f"objective={objective} needs a {label} for every pair: set data.{label}_column")


def check_no_labels(labels: LabelKind | None, objective: str) -> None:
    """Raise UserError if rows have labels, which the objective would ignore."""
    if labels:
        raise UserError(f"objective={objective} takes no labels: set data.label_column=null data.score_column=null")


def check_head_is_kept(encoder: SentenceEncoder, objective: str) -> None:
    """Raise UserError if a head makes the vectors of training, and not those of the saved encoder."""
    if encoder.head.endswith("_train_only"):
        raise UserError(
            f"model.head={encoder.head}: {objective} would not train the vectors of the saved encoder, because this "
            "head is dropped: set model.head=none or mlp"
        )
