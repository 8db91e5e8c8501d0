"""What is measured on validation and test sets: evaluators, and their sentences, divided over the devices."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from simcse_pl.models.protocols import Encode
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import Tokens
from simcse_pl.utils.distributed import rank, world_size
from simcse_pl.utils.errors import UserError, first_line

VALIDATION, TEST = "validation", "test"  # the names of the splits
_BATCH = 256


class Evaluator(ABC):
    """A measurement of an encoder on a validation set, a test set, or both.

    Its constructor takes `validation` and `test` (the options data.validation and data.test), and the options of its
    config, which have priority. Training constructs it on the first device and sends it to the others, so it must be
    picklable. `simcse evaluate` measures the test set; its `validation` is None.
    """

    @abstractmethod
    def sentences(self, split: str) -> Sequence[str]:
        """Return the sentences of a split, `validation` or `test`; none if there is nothing to measure on it."""

    def name(self, split: str) -> str:
        """Return the name of the data of a split, for tables."""
        return type(self).__name__

    @abstractmethod
    def __call__(self, encode: Encode, split: str) -> dict[str, float]:
        """Return the metrics of a split by name.

        Args:
            encode: function from sentences to vectors [n, dim], for the sentences of the split.
            split: `validation` or `test`.
        """


def make_evaluators(makers: Mapping[str, Callable[..., Evaluator]], **files: Any) -> dict[str, Evaluator]:
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


def source_of(evaluators: Mapping[str, Evaluator], split: str) -> str:
    """Return the names of the data of a split."""
    names = (evaluator.name(split) for evaluator in evaluators.values() if evaluator.sentences(split))
    return ", ".join(dict.fromkeys(names))


def measure(evaluators: Mapping[str, Evaluator], encode: Encode, split: str) -> dict[str, float]:
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
        measured = evaluator(encode, split)
        if twice := sorted(measured.keys() & metrics):
            raise UserError(f"evaluators.{name}: another evaluator has a metric {twice[0]} too; rename one")
        metrics |= measured
    return metrics


class EvaluationSentences:
    """The distinct sentences of some evaluators, the longest first.

    Args:
        sentences: the sentences.
        templates: the encoder's, with its tokenizer.
    """

    def __init__(self, sentences: Sequence[str], templates: Templates) -> None:
        distinct = list(dict.fromkeys(sentences))
        self._templates = templates
        tokens = templates.tokens_of(distinct, templates.tokenizer.model_max_length)
        order = sorted(range(len(distinct)), key=lambda i: -len(tokens[i]))
        self.sentences = [distinct[i] for i in order]
        self.tokens = [np.array(tokens[i]) for i in order]

    def __len__(self) -> int:
        return len(self.sentences)

    def loader(self) -> DataLoader[Tokens]:
        """Return batches of this device's sentences, [batch, tokens]; each sentence is on one device.

        Raises:
            UserError: a device has no sentence.
        """
        if len(self) < world_size():
            raise UserError(
                f"trainer.devices: a validation or test set of {len(self)} distinct sentences is too small for "
                f"{world_size()} devices; use fewer, or give a larger file"
            )
        tokens: Any = self.tokens[rank() :: world_size()]
        return DataLoader(tokens, batch_size=_BATCH, collate_fn=self._templates.batch)

    def encode(self, vectors: Tensor) -> Encode:
        """Return a function from sentences to their vectors.

        Args:
            vectors: the vectors of the sentences of `loader`, of all devices in order, [n, dim].
        """
        ranks = world_size()
        order = [place for device in range(ranks) for place in range(device, len(self), ranks)]
        row = {self.sentences[place]: number for number, place in enumerate(order)}
        return lambda sentences: vectors[[row[sentence] for sentence in sentences]]
