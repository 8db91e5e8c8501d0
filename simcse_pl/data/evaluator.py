"""Evaluators: their base class, how configs make them, and the metrics of all of them on a split."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import Encode

VALIDATION, TEST = "validation", "test"  # the names of the splits


class Evaluator(ABC):
    """A measurement of an encoder on a validation set, a test set, or both.

    Its constructor takes `validation` and `test` (the options data.validation and data.test), and the options of its
    config, which have priority. Training constructs it on the first device and sends it to the others, so it must be
    picklable. `simcse evaluate` measures the test set; its `validation` is None.
    """

    @abstractmethod
    def sentences(self, split: str) -> Sequence[str]:
        """Return the sentences of a split, `validation` or `test`; none if there is nothing to measure on it."""

    def by_prompt(self, split: str) -> Mapping[str | None, Sequence[str]]:
        """Return the sentences of a split by the name of the prompt that they have if the encoder has it."""
        return {None: self.sentences(split)}

    def name(self, split: str) -> str:
        """Return the name of the data of a split, for tables."""
        return type(self).__name__

    @abstractmethod
    def __call__(self, encode: Encode, split: str) -> dict[str, float]:
        """Return the metrics of a split by name; `encode` knows the sentences of the split alone."""


def make_evaluators(makers: Mapping[str, Callable[..., Evaluator]], **files: Any) -> dict[str, Evaluator]:
    """Return the evaluators of a run by name, each made from `files`: `validation` and `test`.

    Files in the config of an evaluator replace them.
    """
    made = {}
    for name, make in makers.items():
        if isinstance(make, Evaluator):
            raise UserError(f"evaluators.{name}: its config needs `_partial_: true`")
        made[name] = make(**files | getattr(make, "keywords", {}))
    return made


def source_of(evaluators: Mapping[str, Evaluator], split: str) -> str:
    """Return the names of the data of a split."""
    names = (evaluator.name(split) for evaluator in evaluators.values() if evaluator.sentences(split))
    return ", ".join(dict.fromkeys(names))


def measure(evaluators: Mapping[str, Evaluator], encode: Encode, split: str) -> dict[str, float]:
    """Return the metrics of all evaluators; raise UserError if two have a metric of the same name."""
    metrics: dict[str, float] = {}
    for name, evaluator in evaluators.items():
        if not evaluator.sentences(split):
            continue
        measured = evaluator(encode, split)
        if twice := sorted(measured.keys() & metrics):
            raise UserError(f"evaluators.{name}: another evaluator has a metric {twice[0]} too; rename one")
        metrics |= measured
    return metrics


def encode_columns(encode: Encode, *columns: Sequence[str]) -> list[Tensor]:
    """Return the vectors [n, dim] of each column of sentences; `encode` gets the sorted distinct sentences once."""
    distinct = sorted(set().union(*columns))
    row = {sentence: i for i, sentence in enumerate(distinct)}
    vectors = encode(distinct)
    return [vectors[[row[sentence] for sentence in column]] for column in columns]
