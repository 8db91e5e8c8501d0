"""The evaluators of a run, and their sentences: tokenized once and divided over the devices."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.models.protocols import Encode
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import Batch, Tokens, tokenize
from simcse_pl.utils.distributed import rank, world_size
from simcse_pl.utils.errors import UserError

VALIDATION, TEST = "validation", "test"  # the names of the splits
_BATCH = 256


class Measurement(Protocol):
    """What this package needs of an evaluator (see evaluation.evaluators.Evaluator)."""

    def name(self, split: str) -> str:
        """Return the name of the data of a split, for tables."""

    def sentences(self, split: str) -> Sequence[str]:
        """Return the sentences of a split, `validation` or `test`."""

    def __call__(self, encode: Encode, split: str) -> dict[str, float]:
        """Return the metrics of a split by name."""


def make_evaluators(makers: Mapping[str, Callable[..., Measurement]], **files: Any) -> dict[str, Measurement]:
    """Return the evaluators of a run by name.

    Args:
        makers: functions of `validation` and `test` by name.
        files: `validation` and `test`. Those that are in the config of an evaluator come first.
    """
    return {name: make(**(files | getattr(make, "keywords", {}))) for name, make in makers.items()}


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


class EvaluationSentences:
    """The distinct sentences of some evaluators, the longest first.

    Args:
        sentences: the sentences.
        tokenizer: the encoder's tokenizer.
        templates: the encoder's; None for none.
    """

    def __init__(
        self, sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase, templates: Templates | None = None
    ) -> None:
        distinct = list(dict.fromkeys(sentences))
        tokens = tokenize(tokenizer, distinct, tokenizer.model_max_length)
        order = sorted(range(len(distinct)), key=lambda i: -len(tokens[i]))
        self.sentences = [distinct[i] for i in order]
        self.tokens = [np.array(tokens[i]) for i in order]
        self._templates = templates or Templates(tokenizer)

    def __len__(self) -> int:
        return len(self.sentences)

    def loader(self) -> DataLoader[Tokens]:
        """Return batches of this device's sentences, [batch, tokens]; each sentence is on one device."""
        own = self.tokens[rank() :: world_size()]
        return DataLoader(own, batch_size=_BATCH, collate_fn=self._collate)  # type: ignore[arg-type]

    def _collate(self, tokens: Sequence[Tokens]) -> Batch:
        return self._templates.batch(tokens)

    def encode(self, vectors: Tensor) -> Encode:
        """Return a function from sentences to their vectors.

        Args:
            vectors: those of the loaders of all devices, one device after the other, [n, dim].
        """
        ranks = world_size()
        order = [place for device in range(ranks) for place in range(device, len(self), ranks)]
        row = {self.sentences[place]: number for number, place in enumerate(order)}
        return lambda sentences: vectors[[row[sentence] for sentence in sentences]]
