"""Labels in files: the names of classes, and scores as numbers or as words of several languages."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from simcse_pl.data.formats import OpenedTable
from simcse_pl.data.records import NO_LABEL
from simcse_pl.utils.text import as_number
from simcse_pl.utils.types import Names

NLI_WORDS = {
    "entailment": ("entailment", "蕴含", "蘊含", "含意", "함의"),
    "neutral": ("neutral", "中立", "중립"),
    "contradiction": ("contradiction", "矛盾", "모순"),
}
NEUTRAL = 0.5  # between the scores of contradiction and entailment

_YES = ("true", "yes", "duplicate", "paraphrase", "equivalent", "same", "similar", "是", "相同", "相似", "ja", "oui")
_NO = ("false", "no", "different", "dissimilar", "否", "不同", "不相似", "nein", "non")
_CLASSES = {word: name for name, words in NLI_WORDS.items() for word in words}
_NUMBERS: dict[str, float] = {
    **dict.fromkeys((*_YES, *NLI_WORDS["entailment"]), 1.0),
    **dict.fromkeys(NLI_WORDS["neutral"], NEUTRAL),
    **dict.fromkeys((*_NO, *(f"not_{word}" for word in _YES[2:6]), "not_entailment"), 0.0),
    **dict.fromkeys(NLI_WORDS["contradiction"], 0.0),
}
_AMBIGUOUS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # the comma separates decimals or thousands
_LARGEST_SCORE = float(np.finfo(np.float32).max)


def read_label(table: OpenedTable, column: int, cell: Any, scores: bool, names: Names) -> Any:
    """Return the name of a class, or of `scores` the score, in a cell; raise ValueError if it has none.

    `names` are the words for the labels 0, 1, ...
    """
    text = table.text(column, label_text(cell))
    if scores and names is None and _AMBIGUOUS.fullmatch(text):
        write = f"write {text.replace(',', '')} or {text.replace(',', '.')}"
        raise ValueError(f"column {table.name(column)} holds {text!r}, with a comma for thousands or decimals: {write}")
    label = label_number(text, names) if scores else class_name(text, names)
    if label is None or (isinstance(label, float) and abs(label) > _LARGEST_SCORE):
        known = f"{', '.join(map(str, names))} of label_names" if names else "a label"
        if scores and not names:
            known = "a finite number or a word such as yes; label_names=[...] gives the words for 0, 1, ..."
        raise ValueError(f"column {table.name(column)} holds {text[:40]!r}, not {known}")
    return label


def label_text(cell: Any) -> Any:
    """Return a cell of labels as text, if it is a number, a truth value or missing."""
    if cell is None or cell != cell:
        return ""
    return str(cell) if isinstance(cell, int | float) else cell


def class_name(label: str, names: Names = None) -> str | None:
    """Return the name of a class: that of `names`, the English word of NLI, or the label; None if it is not one.

    Examples:
        >>> class_name("蕴含"), class_name("1.0"), class_name("-"), class_name("Sport")
        ('entailment', '1', None, 'Sport')
    """
    name = _CLASSES.get(label.casefold()) or re.sub(r"^(-?\d+)[.,]0+$", r"\1", label)
    known = name != NO_LABEL if names is None else name in class_names(names)
    return name if known else None


def class_names(names: Sequence[Any]) -> list[str]:
    """Return the names of the classes that the user has given words for, in their order."""
    return [class_name(str(name)) or str(name) for name in names]


def label_number(label: str, names: Names = None) -> float | None:
    """Return a score, or the number of a label; None if it is neither a number nor one of the words.

    Without `names`, words such as yes are 1, and words such as no are 0.
    """
    if names is not None:
        name = class_name(label, names)
        return None if name is None else float(class_names(names).index(name))
    number = as_number(label)
    return _NUMBERS.get(label.casefold()) if number is None else number
