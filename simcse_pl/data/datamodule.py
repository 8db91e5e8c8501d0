"""The LightningDataModule: training batches of views, and the sentences of validation and test sets."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning import LightningDataModule
from torch.utils.data import DataLoader
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.collators import LabeledViewCollator, ViewCollator
from simcse_pl.data.dataset import TrainingDataset
from simcse_pl.data.evaluation_sentences import EvaluationSentences
from simcse_pl.data.evaluators import TEST, VALIDATION, Measurement, make_evaluators
from simcse_pl.data.readers.row_reader import NamedRows, Warn, fingerprint, iterate_documents, iterate_rows
from simcse_pl.data.sampler import ContrastiveBatchSampler, ContrastiveDataLoader
from simcse_pl.data.token_cache import open_token_cache
from simcse_pl.data.views.sentences import Dropout
from simcse_pl.data.views.view import View
from simcse_pl.models.tokenization import Tokens
from simcse_pl.utils.distributed import is_first_process, rank, world_size
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)

_LABELS_SHOWN = 10


class SentenceDataModule(LightningDataModule):
    """Sentences or rows of sentences to train on, and the sentences of evaluators to validate and test on.

    Args:
        tokenizer: the encoder's tokenizer.
        train: the training data (see row_reader.iterate_rows).
        columns, on_invalid_row, header, split: how to read it (see row_reader.iterate_rows).
        label_column: the column of the classes, by name or by position from 0; batches then have `labels`.
        limit: the number of rows to train on, drawn at random and kept in order; None for all.
        view: how the positive of a row of one sentence is made; None for the sentence itself.
        batch_size: the rows of a contrastive batch, over all devices together.
        max_length: the number of tokens read of a training sentence, special tokens included.
        evaluators: by name, functions of `validation` and `test` that make evaluators.
        validation, test: the data of the evaluators.
        num_workers: the number of worker processes; 0 prepares batches in the training process.
        seed: seeds the draw of rows and, in each epoch, their order and the views.

    Raises:
        UserError: a value is out of range; from `setup`, the data cannot be read or trained on.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        train: str | Path,
        columns: Sequence[int | str] | None = None,
        on_invalid_row: str = "error",
        header: bool | None = None,
        split: str = "train",
        label_column: int | str | None = None,
        limit: int | None = None,
        view: View | None = None,
        batch_size: int = 64,
        max_length: int = 32,
        evaluators: Mapping[str, Callable[..., Measurement]] | None = None,
        validation: str | Sequence[str] | Mapping[str, str] | None = None,
        test: str | Mapping[str, str] | None = None,
        num_workers: int = 0,
        seed: int = 42,
    ) -> None:
        super().__init__()
        shortest = tokenizer.num_special_tokens_to_add() + 1
        if not shortest <= max_length <= tokenizer.model_max_length:
            longest = tokenizer.model_max_length
            raise UserError(f"data.max_length={max_length}: this model reads {shortest} to {longest} tokens")
        if batch_size < 1:
            raise UserError(f"data.batch_size={batch_size}: it must be at least 1")
        if num_workers < 0:
            raise UserError(f"data.num_workers={num_workers}: it must be 0 or more")
        if view is not None and view.num_following and (columns is not None or label_column is not None):
            option = "data.columns" if columns is not None else "data.label_column"
            raise UserError(f"{option}: this view uses the next sentences in a text file, which has no columns")
        self.tokenizer = tokenizer
        self.train = train
        self.columns, self.on_invalid_row, self.header, self.split = columns, on_invalid_row, header, split
        self.label_column = label_column
        self.limit = limit
        self.view = None if isinstance(view, Dropout) else view  # one sentence is tokenized once for both views
        self.batch_size = batch_size
        self.max_length = max_length
        self.make_evaluators = evaluators or {}
        self.validation = validation
        self.test = test
        self.num_workers = num_workers
        self.seed = seed
        self.rows: TrainingDataset | None = None
        self.evaluators: dict[str, Measurement] = {}
        self.sentences: dict[str, EvaluationSentences] = {}
        self._place: dict[str, int] = {}

    def setup(self, stage: str | None = None) -> None:
        """Read all data once; the trainer calls this on every rank.

        Rank 0 makes the evaluators and sends them to the other ranks, so that all of them embed the same sentences.
        """
        if not self.evaluators and is_first_process():
            self.evaluators = make_evaluators(self.make_evaluators, validation=self.validation, test=self.test)
        if self.trainer is not None:
            self.evaluators = self.trainer.strategy.broadcast(self.evaluators)
        if not self.sentences:
            for split in (VALIDATION, TEST):
                sentences = [one for own in self.evaluators.values() for one in own.sentences(split)]
                self.sentences[split] = EvaluationSentences(sentences, self.tokenizer)
            if not len(self.sentences[VALIDATION]):
                raise UserError("data.validation is not set: give a file, or the sources of STS-B")
        if self.rows is None:
            self._read_rows()

    def _read_rows(self) -> None:
        self.rows = self._training_rows()
        width = len(self.rows.rows[0])
        log.info("train: %d rows of %d from %s", len(self.rows), width, self.train)
        if self.labels:
            log.info("labels: %d, %s", len(self.labels), ", ".join(self.labels[:_LABELS_SHOWN]))
        elif min(len(self.rows), self.batch_size) == 1 and width < 3:
            cause = "data.batch_size=1" if self.batch_size == 1 else f"{self.train} has one row to train on"
            raise UserError(f"{cause}: a batch of one row without hard negatives has no negatives")

    @property
    def labels(self) -> list[str]:
        """The class names in the order of their numbers; empty before `setup` or without a label column."""
        return [] if self.rows is None else self.rows.classes

    @property
    def views(self) -> int:
        """The number of sentences in a training row, at least two: a single sentence gets a positive."""
        assert self.rows is not None
        return max(2, len(self.rows.rows[0]))

    def _training_rows(self) -> TrainingDataset:
        how = (self.columns, self.on_invalid_row, self.header, self.split)
        documents = self.view is not None and self.view.num_following > 0

        def read(warn: Warn) -> NamedRows:
            if documents:
                return iterate_documents(self.train, self.on_invalid_row, warn)
            return iterate_rows(self.train, *how, self.label_column, warn)

        key = (fingerprint(self.train, self.split), documents, self.label_column, *how)
        cache = open_token_cache(read, key, self.tokenizer, self.max_length)
        if self.view is not None and len(cache.sentences[0]) > 1:
            given = f"{self.train} has rows of {len(cache.sentences[0])} sentences, with positives of their own"
            raise UserError(f"{given}: set views=dropout, or data.columns to one column")
        for split, own in self.sentences.items():
            if seen := cache.count(set(own.sentences)):
                log.warning("%d sentences of %s are in the %s set: scores may be too high", seen, self.train, split)
        return TrainingDataset(
            cache.sentences,
            self.view,
            labels=None if self.label_column is None else cache.names,
            documents=cache.names if documents else None,
            limit=self.limit,
            seed=self.seed,
            tokens=cache.tokens,
        )

    def train_dataloader(self) -> ContrastiveDataLoader:
        """Return batches of views, [batch, views, tokens]; each rank gets its part of every contrastive batch."""
        assert self.rows is not None
        views = ViewCollator(self.tokenizer, self.max_length)
        batches = self._batches(self.rows)
        collate = LabeledViewCollator(views) if self.labels else views
        if self._place:
            batches.resume(**self._place)
        return ContrastiveDataLoader(self.rows, batches, collate, self.num_workers)

    def _batches(self, rows: TrainingDataset) -> ContrastiveBatchSampler:
        return ContrastiveBatchSampler(len(rows), self.batch_size, world_size(), rank(), self.seed)

    def rows_of_batch(self, epoch: int, batch: int) -> list[int]:
        """Return the positions in `train` of the rows of a contrastive batch over all devices."""
        assert self.rows is not None
        return [self.rows.chosen[row] for row in self._batches(self.rows).rows_of(epoch, batch)]

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of its batches that are done."""
        assert self.trainer is not None
        done: Any = self.trainer.fit_loop.epoch_loop.batch_progress.current
        return {"epoch": self.trainer.current_epoch, "batch": done.processed}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue at the epoch and batch of `state_dict`."""
        self._place = state_dict

    def val_dataloader(self) -> DataLoader[Tokens]:
        """Return batches of the validation sentences."""
        return self.sentences[VALIDATION].loader()

    def test_dataloader(self) -> DataLoader[Tokens]:
        """Return batches of the test sentences."""
        return self.sentences[TEST].loader()
