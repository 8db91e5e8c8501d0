"""The LightningDataModule: training batches of views, and the sentences of validation and test sets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pytorch_lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.evaluation_sentences import EvaluationSentences
from simcse_pl.data.evaluators import TEST, VALIDATION, Evaluator, make_evaluators
from simcse_pl.data.sampler import SAMPLING, ContrastiveBatches, ContrastiveDataLoader, MixedBatchSampler
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.data.views.view import View
from simcse_pl.models.roles import RowKind
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import Tokens
from simcse_pl.utils.distributed import rank, world_size
from simcse_pl.utils.errors import UserError, did_you_mean
from simcse_pl.utils.ranks import is_first_process
from simcse_pl.utils.tensors import to_device
from simcse_pl.utils.validation import expected_types

_OPTIONS = {name: hint for name, hint in get_type_hints(TrainingSet.__init__).items() if name not in ("name", "return")}
_OPTIONS["views"] = Mapping[str, View | None] | None  # null drops a view, or all


class SentenceDataModule(LightningDataModule):
    """Sentences or rows of sentences to train on, and the sentences of evaluators to validate and test on.

    Args:
        tokenizer: the encoder's tokenizer.
        train, columns, on_invalid_row, header, split, label_column, score_column, roles: the training set (see
            TrainingSet).
        limit, hold_out, views, batch_size: its rows and batches (see TrainingSet). `views` may also be a single view.
        sets: in place of `train`, the options of several training sets by name. An option that a set leaves out has the
            value above. Each batch comes from one set; `dataset` in the batch is its name.
        sampling: the order of the batches of several sets (see MixedBatchSampler).
        max_length: the number of tokens read of a training sentence, including special tokens but not the template's.
        evaluators: by name, functions of `validation` and `test` that make evaluators.
        validation, test: the data of the evaluators.
        num_workers: the number of worker processes; 0 prepares batches in the training process.
        seed: seeds the choice of rows (`limit`) and, in each epoch, their order and the views.
        templates: the encoder's; None for none.

    Raises:
        UserError: a value is out of range; from `setup`, the data cannot be read or trained on.

    Attributes:
        sets: the training sets by name. The name of a single one is empty.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        train: str | Path | None = None,
        columns: Sequence[int | str] | None = None,
        on_invalid_row: str = "error",
        header: bool | None = None,
        split: str = "train",
        label_column: int | str | None = None,
        score_column: int | str | None = None,
        roles: Sequence[str] | None = None,
        limit: int | None = None,
        hold_out: float = 0.0,
        views: View | Mapping[str, View] | None = None,
        batch_size: int = 64,
        sets: Mapping[str, Mapping[str, Any]] | None = None,
        sampling: str = "proportional",
        max_length: int = 32,
        evaluators: Mapping[str, Callable[..., Evaluator]] | None = None,
        validation: str | Sequence[str] | Mapping[str, str] | None = None,
        test: str | Mapping[str, str] | None = None,
        num_workers: int = 0,
        seed: int = 42,
        templates: Templates | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in _OPTIONS}
        super().__init__()
        shortest = tokenizer.num_special_tokens_to_add() + 1
        if not shortest <= max_length <= tokenizer.model_max_length:
            longest = tokenizer.model_max_length
            raise UserError(f"data.max_length={max_length}: this model reads {shortest} to {longest} tokens")
        if num_workers < 0:
            raise UserError(f"data.num_workers={num_workers}: it must be 0 or more")
        if sampling not in SAMPLING:
            near = did_you_mean(sampling, SAMPLING)
            raise UserError(f"data.sampling={sampling}: choose one of {', '.join(SAMPLING)}{near}")
        self.tokenizer = tokenizer
        self.sets = _training_sets(given, sets)
        self.sampling = sampling
        self.max_length = max_length
        self.make_evaluators = evaluators or {}
        self.validation = validation
        self.test = test
        self.num_workers = num_workers
        self.seed = seed
        self.templates = templates
        self.evaluators: dict[str, Evaluator] = {}
        self.sentences: dict[str, EvaluationSentences] = {}
        self._read = False
        self._place: dict[str, int] = {}

    def setup(self, stage: str | None = None) -> None:
        """Read all data once; the trainer calls this on every rank.

        Rank 0 makes the evaluators and sends them to the other ranks, so that all of them embed the same sentences.
        """
        if not self.evaluators and is_first_process():
            self.evaluators = make_evaluators(self.make_evaluators, validation=self.validation, test=self.test)
        if self.trainer is not None:
            self.evaluators = self.trainer.strategy.broadcast(self.evaluators)
        if not self.sentences and (self.evaluators or is_first_process()):  # other ranks get them by the broadcast
            for split in (VALIDATION, TEST):
                sentences = [one for own in self.evaluators.values() for one in own.sentences(split)]
                self.sentences[split] = EvaluationSentences(sentences, self.tokenizer, self.templates)
            if not len(self.sentences[VALIDATION]):
                raise UserError("data.validation is not set: give a file, or the sources of STS-B")
        if not self._read:
            self._read_rows()
            self._read = True

    def _read_rows(self) -> None:
        evaluated = {split: own.sentences for split, own in self.sentences.items()}
        for place, (name, own) in enumerate(self.sets.items()):
            with naming(name):
                own.read(self.tokenizer, self.max_length, self._seed(place), evaluated, self.templates)

    def _seed(self, place: int) -> int:
        """Return the seed of a training set; PyTorch's generators use its low 32 bits only."""
        return int(np.random.SeedSequence([self.seed, place]).generate_state(1)[0]) if place else self.seed

    def train_dataloader(self) -> ContrastiveDataLoader:
        """Return batches of views, [batch, views, tokens]; each rank gets its part of every contrastive batch."""
        batches = self._batches()
        if self._place:
            batches.resume(**self._place)
        return ContrastiveDataLoader({name: own.batch for name, own in self.sets.items()}, batches, self.num_workers)

    def _batches(self) -> MixedBatchSampler:
        batches = {}
        for place, (name, own) in enumerate(self.sets.items()):
            with naming(name):
                how = own.batch_size, world_size(), rank(), self._seed(place)
                batches[name] = ContrastiveBatches(len(own.chosen), *how)
        return MixedBatchSampler(batches, self.sampling, self.seed)

    def held_out_batches(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield batches of the held-out rows of a training set, [batch, views, tokens], always the same.

        Each rank gets its part of a batch. A last batch with fewer rows than ranks is left out.

        Raises:
            UserError: fewer rows than ranks are held out.
        """
        own = self.sets[name]
        if (count := len(own.held_out)) < world_size():
            with naming(name):
                raise UserError(f"data.hold_out={own.hold_out}: {count} rows for {world_size()} devices; hold out more")
        whole = len(own.held_out) - (rest if (rest := len(own.held_out) % own.batch_size) < world_size() else 0)
        for keys in ContrastiveBatches(whole, own.batch_size, world_size(), rank(), self.seed).draw(0):
            yield own.batch(keys, held_out=True)

    def rows_of_batch(self, epoch: int, batch: int) -> tuple[TrainingSet, list[int]]:
        """Return the training set of a contrastive batch over all devices, and its rows' positions in `train`."""
        name, rows = self._batches().rows_of(epoch, batch)
        own = self.sets[name]
        return own, [own.chosen[row] for row in rows]

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Copy the tensors of a batch, without waiting for a GPU."""
        return batch | to_device({name: x for name, x in batch.items() if isinstance(x, Tensor)}, device)

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of its batches that are done."""
        assert self.trainer is not None
        done: Any = self.trainer.fit_loop.epoch_loop.batch_progress.current
        return {"epoch": self.trainer.current_epoch, "batch": done.processed}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue at the epoch and batch of `state_dict`."""
        self._place = state_dict

    @property
    def row_kinds(self) -> dict[str, RowKind]:
        """The roles of the views and the kind of the labels of each training set, after `setup`."""
        return {name: RowKind(own.view_roles, own.labels) for name, own in self.sets.items()}

    def val_dataloader(self) -> DataLoader[Tokens]:
        """Return batches of the validation sentences."""
        return self.sentences[VALIDATION].loader()

    def test_dataloader(self) -> DataLoader[Tokens]:
        """Return batches of the test sentences."""
        return self.sentences[TEST].loader()


def _training_sets(given: Mapping[str, Any], sets: Mapping[str, Mapping[str, Any]] | None) -> dict[str, TrainingSet]:
    """Return the training sets by name; `given` are the options of data."""
    if sets is None:
        if given["train"] is None:
            raise UserError("data.train is missing: give a file, or several in data.sets")
        return {"": TrainingSet(**_with_views(given))}
    if given["train"] is not None:
        raise UserError("data.train: it must be null with data.sets; make it one of the sets")
    if not sets:
        raise UserError("data.sets is empty: name at least one")
    made = {}
    for name, own in sets.items():
        for option, value in own.items():
            if option not in _OPTIONS:
                raise UserError(f"no option data.sets.{name}.{option}{did_you_mean(option, _OPTIONS)}")
            _check_type(f"data.sets.{name}.{option}", _OPTIONS[option], value)
        if own.get("train") is None:
            raise UserError(f"data.sets.{name}.train is missing: give a file")
        with naming(name):
            made[name] = TrainingSet(**_with_views({**given, **own}), name=name)
    return made


def _check_type(option: str, hint: Any, value: Any) -> None:
    """Raise UserError unless a value of a config has the type of its option."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
        adapter.validate_python(value, strict=True)
    except ValidationError as error:
        raise UserError(f"{option}={value}: it must be {expected_types(error.errors())}") from error


def _with_views(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with views by name, without those that are null."""
    views = options["views"] or {}
    named = {"view": views} if isinstance(views, View) else views
    return {**options, "views": {name: view for name, view in named.items() if view is not None}}


@contextmanager
def naming(dataset: str) -> Iterator[None]:
    """Begin the message of a UserError with the option of a training set, if it has a name."""
    try:
        yield
    except UserError as error:
        if not dataset:
            raise
        raise UserError(f"data.sets.{dataset}: {error}") from error
