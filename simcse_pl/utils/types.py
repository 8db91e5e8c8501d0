"""The types that pass between parts: inputs of a backbone, and what the views of a row and its label are to a loss."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from simcse_pl.utils.code import expected_instead
from simcse_pl.utils.errors import UserError

Batch = dict[str, Tensor]  # the tokenizer's tensors, such as `input_ids`
if TYPE_CHECKING:
    from transformers import PreTrainedModel

    Backbone = PreTrainedModel
else:
    Backbone = nn.Module  # to import PreTrainedModel takes longer than to import torch
CompileMode = Literal["default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"]  # torch's
# int64 numbers of classes, float32 scores, or a float32 score for each positive and hard negative
LabelKind = Literal["classes", "scores", "score_lists"]
Label = str | float | list[float]  # of a row that is read: the name of its class or document, its score, or its scores
Names = Sequence[Any] | None  # the user's words for the labels 0, 1, ...
Tokens = NDArray[np.integer]  # of one sentence, [tokens], including special tokens


class Role(StrEnum):
    """What a view of a row is to the loss. The first view of a row is its anchor, and no other one is.

    Contrastive objectives ignore `other` views; auxiliary losses can read them.
    """

    ANCHOR = "anchor"
    POSITIVE = "positive"
    NEGATIVE = "negative"
    OTHER = "other"


def default_roles(views: int) -> tuple[Role, ...]:
    """Return anchor, positive, then hard negatives."""
    return (Role.ANCHOR, Role.POSITIVE, *[Role.NEGATIVE] * (views - 2))


def candidates(roles: Sequence[Role]) -> list[int]:
    """Return the positions of the positives and hard negatives, in the order of the row."""
    return [view for view, role in enumerate(roles) if role in (Role.POSITIVE, Role.NEGATIVE)]


@dataclass(frozen=True)
class RowKind:
    """What the rows of a data set have. That of a run is a TrainingRows, which has the rows, too.

    Args:
        roles: the roles of the views.
        labels: what the labels are, or None.
        label_range: the lowest and the highest label, if they are known; classes are numbered from 0.
        classes: the number of classes of the data set, if it is known.
        dataset: the name of the data set; empty if there is one only.
        examples: the token ids of some anchors, with special tokens, and with INSIDE_WORD if a segmenter marks words.
    """

    roles: tuple[Role, ...] = default_roles(2)
    labels: LabelKind | None = None
    label_range: tuple[float, float] | None = None
    classes: int | None = None
    dataset: str = ""
    examples: Sequence[Tokens] = field(default=(), compare=False)

    @property
    def sentences(self) -> Sequence[tuple[str, ...]]:
        """The sentences of each row of the file; empty if they are not known."""
        return ()


def checked(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function that raises UserError for a number, a word, or a list of them, outside of its annotation."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checking(*given: Any, **named: Any) -> None:
        for name, value in signature.bind(*given, **named).arguments.items():
            plain = isinstance(value, int | float | str | list | tuple)
            if plain and (expected := expected_instead(value, signature.parameters[name].annotation, function)):
                raise UserError(f"{name}={value}: it should be {expected}")
        function(*given, **named)

    return checking


class Checked:
    """A base of classes that check the arguments of their constructors from Python as from a config."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]
