"""Evaluators as data modules and commands use them: make them, and measure a split with all of them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from simcse_pl.models.protocols import Encode
from simcse_pl.utils.errors import UserError, first_line

VALIDATION, TEST = "validation", "test"  # the names of the splits


class Measurement(Protocol):
    """What this package needs of an evaluator (see evaluation.evaluator.Evaluator)."""

    def name(self, split: str) -> str:
        """Return the name of the data of a split, for tables."""

    def sentences(self, split: str) -> Sequence[str]:
        """Return the sentences of a split, `validation` or `test`."""

    def __call__(self, encode: Encode, split: str) -> dict[str, float]:
        """Return the metrics of a split by name."""


def make_evaluators(makers: Mapping[str, Callable[..., Measurement]], **files: Any) -> dict[str, Measurement]:
    """Return the evaluators of a run by name.

    Args:
        makers: by name, functions of `validation` and `test` that return evaluators.
        files: `validation` and `test`. Files in the config of an evaluator replace them.

    Raises:
        UserError: a maker does not accept these arguments.
    """
    made = {}
    for name, make in makers.items():
        arguments = files | getattr(make, "keywords", {})
        try:
            inspect.signature(getattr(make, "func", make)).bind(*getattr(make, "args", ()), **arguments)
        except (TypeError, ValueError) as error:
            advice = "" if isinstance(make, partial) else "; its config needs `_partial_: true`"
            raise UserError(f"evaluators.{name}: {first_line(error)}{advice}") from error
        made[name] = make(**arguments)
    return made


def source_of(evaluators: Mapping[str, Measurement], split: str) -> str:
    """Return the names of the data of a split."""
    names = (own.name(split) for own in evaluators.values() if own.sentences(split))
    return ", ".join(dict.fromkeys(names))


def measure(evaluators: Mapping[str, Measurement], encode: Encode, split: str) -> dict[str, float]:
    """Return the metrics of all evaluators.

    Args:
        evaluators: by name.
        encode: function from the split's sentences to vectors [n, dim].
        split: `validation` or `test`.

    Raises:
        UserError: two evaluators have a metric of the same name.
    """
    metrics: dict[str, float] = {}
    for name, evaluator in evaluators.items():
        if not evaluator.sentences(split):
            continue
        own = evaluator(encode, split)
        if twice := sorted(own.keys() & metrics):
            raise UserError(f"evaluators.{name}: another evaluator has a metric {twice[0]} too; rename one")
        metrics |= own
    return metrics
