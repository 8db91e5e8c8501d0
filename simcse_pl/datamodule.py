"""The LightningDataModule: training batches of views, and the sentences of validation and test sets."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt
from pytorch_lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from simcse_pl.data.collator import TrainingRows
from simcse_pl.data.sampler import Batches, ContrastiveBatches, ContrastiveDataLoader, MixedBatchSampler, Sampling
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.data.view import Segmenter
from simcse_pl.evaluation.evaluators import Evaluator, make_evaluators
from simcse_pl.models.templates import Templates
from simcse_pl.results import TEST, VALIDATION
from simcse_pl.utils.distributed import rank, world_size
from simcse_pl.utils.errors import UserError, prefixed
from simcse_pl.utils.processes import is_first_process
from simcse_pl.utils.tensors import DOCUMENT, Encode
from simcse_pl.utils.types import Batch, Role, Tokens

_EVALUATED_AT_ONCE = 256  # sentences


class EvaluationSentences:
    """The distinct sentences of all evaluators with the names of their prompts, longest first.

    Args:
        sentences: pairs of a prompt's name and its sentences. A prompt that the encoder lacks is left out.
        templates: the encoder's.
    """

    def __init__(self, sentences: Iterable[tuple[str | None, Sequence[str]]], templates: Templates) -> None:
        by_prompt = ((name if name in templates.prompts else None, texts) for name, texts in sentences)
        distinct = list(dict.fromkeys((text, name) for name, texts in by_prompt for text in texts))
        self._templates = templates
        tokens = list[list[int]]()
        for name, pairs in itertools.groupby(distinct, key=lambda pair: pair[1]):
            tokens += templates.tokens_of([text for text, _ in pairs], templates.tokenizer.model_max_length, name)
        order = sorted(range(len(distinct)), key=lambda i: -len(tokens[i]))
        self._keys = [distinct[i] for i in order]
        self.sentences = [text for text, _ in self._keys]
        self.tokens = [np.array(tokens[i]) for i in order]

    def __len__(self) -> int:
        return len(self.sentences)

    def loader(self, pin_memory: bool = False) -> DataLoader[Tokens]:
        """Return batches of this device's sentences, [batch, tokens]; each sentence is on one device."""
        tokens: Any = list(zip(self.tokens, self._keys, strict=True))[rank() :: world_size()]
        # a rank with one sentence less has as many batches as the others: sharded weights need it (see speed/fsdp.py)
        starts = range(0, -(-len(self) // world_size()), _EVALUATED_AT_ONCE)
        ends = [min(start, len(tokens) - 1) for start in starts[1:]]
        batches = [list(range(start, end)) for start, end in itertools.pairwise([0, *ends, len(tokens)])]
        return DataLoader(tokens, batch_sampler=batches, collate_fn=self._collate, pin_memory=pin_memory)

    def _collate(self, rows: Sequence[tuple[Tokens, tuple[str, str | None]]]) -> Batch:
        return self._templates.batch([tokens for tokens, _ in rows], prompts=[name for _, (_, name) in rows])

    def encode(self, vectors: Tensor) -> Encode:
        """Return a function from sentences to their vectors.

        `vectors` [n, dim] are in the order of `loader`: first those of rank 0, then those of rank 1, and so on.
        """
        ranks = world_size()
        order = [index for device in range(ranks) for index in range(device, len(self), ranks)]
        row = {self._keys[index]: number for number, index in enumerate(order)}
        prompts = self._templates.prompts

        def encode(sentences: list[str], *, prompt_name: str | None = None) -> Tensor:
            name = prompt_name if prompt_name in prompts else None
            if unlisted := [sentence for sentence in sentences if (sentence, name) not in row]:
                raise UserError(f"evaluators: one encodes {unlisted[0]!r}, which its `sentences` do not have")
            return vectors[[row[sentence, name] for sentence in sentences]]

        return encode


class SentenceDataModule(LightningDataModule):
    """Sentences or rows of sentences to train on, and the sentences of evaluators to validate and test on.

    Args:
        tokenizer: the encoder's tokenizer.
        train: the training data (see TrainingSet); None with `sets`.
        sets: in place of `train`, the options of several training sets by name. An option that a set leaves out has
            the value in `options`. Each batch comes from one set; `dataset` in the batch is its name.
        sampling: the order of the batches of several sets (see orders.mixed).
        max_length: the number of tokens read of a training sentence, including special tokens but not the template's.
            A list, such as [64, 256], has one number per sentence of a row; later sentences use the last. With
            `negatives`, its numbers are for the anchor, positives and hard negatives. A mapping has one for each role.
        evaluators: by name, functions of `validation` and `test` that make evaluators.
        validation, test: the data of the evaluators.
        num_workers: the number of worker processes; 0 prepares batches in the training process.
        seed: seeds the choice of rows (`limit`) and, in each epoch, their order and the views.
        templates: the encoder's; None for none.
        segment: splits a sentence into the words that a loss with `whole_words` masks; None for the tokenizer's words.
        options: how to read `train`, its rows and its batches (see TrainingSet).

    Raises:
        UserError: a value is out of range; from `setup`, the data cannot be read or trained on.

    Attributes:
        sets: the training sets by name. The name of a single one is empty.
        rows: the rows of each set by its name, after `setup`.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        train: str | Path | Sequence[str] | None = None,
        sets: Mapping[str, Annotated[Any, TrainingSet]] | None = None,
        sampling: Sampling = "proportional",
        max_length: PositiveInt
        | Annotated[Sequence[PositiveInt] | Mapping[Role, PositiveInt], Field(min_length=1)] = 32,
        evaluators: Mapping[str, Callable[..., Evaluator]] | None = None,
        validation: str | Sequence[str] | Mapping[str, Any] | None = None,
        test: str | Mapping[str, Any] | None = None,
        num_workers: NonNegativeInt = 0,
        seed: int = 42,
        templates: Templates | None = None,
        segment: Segmenter | None = None,
        **options: Annotated[Any, TrainingSet],
    ) -> None:
        super().__init__()
        shortest = tokenizer.num_special_tokens_to_add() + 1
        given = max_length.values() if isinstance(max_length, Mapping) else max_length
        lengths, longest = [given] if isinstance(given, int) else given, tokenizer.model_max_length
        if not shortest <= min(lengths) <= max(lengths) <= longest:
            raise UserError(f"max_length={max_length}: it is {shortest} to {longest}, which is model.max_length")
        self.tokenizer = tokenizer
        options_of_sets: Mapping[str, Any] = sets or {"": {}}
        self.sets: dict[str, TrainingSet] = {}
        for name, set_options in options_of_sets.items():
            with prefixed_by_dataset(name):
                self.sets[name] = TrainingSet(**{**options, "train": train, **set_options, "name": name or None})
        self.sampling, self.max_length, self.num_workers, self.seed = sampling, max_length, num_workers, seed
        self.make_evaluators, self.validation, self.test = evaluators or {}, validation, test
        self.templates, self.segment = templates or Templates(tokenizer), segment
        self.evaluators: dict[str, Evaluator] = {}
        self.sentences: dict[str, EvaluationSentences] = {}
        self.rows: dict[str, TrainingRows] = {}
        self._groups: dict[str, NDArray[np.integer]] = {}  # of each row, by set, where a set has a sampler
        self._start = (0, 0)  # the epoch and the batch of a resumed run

    def setup(self, stage: str | None = None) -> None:
        """Read all data once; the trainer calls this on every rank.

        Rank 0 makes the evaluators and sends them to the other ranks, so that all of them embed the same sentences.
        """
        if stage == "fit":
            self._start = (0, 0)  # a checkpoint is loaded later
        # Other ranks get the evaluators by the broadcast. Before it, they need only prompts, which rows may share.
        if not self.evaluators and (is_first_process() or self.templates.prompts):
            self.evaluators = make_evaluators(self.make_evaluators, validation=self.validation, test=self.test)
        if self.trainer is not None:
            self.evaluators = self.trainer.strategy.broadcast(self.evaluators)
        if not self.sentences and (self.trainer is not None or is_first_process()):
            for split in (VALIDATION, TEST):
                by_prompt = (evaluator.by_prompt(split).items() for evaluator in self.evaluators.values())
                sentences = itertools.chain.from_iterable(by_prompt)
                self.sentences[split] = EvaluationSentences(sentences, self.templates)
            validates = self.trainer is None or self.trainer.limit_val_batches
            if validates and not len(self.sentences[VALIDATION]):
                raise UserError("data.validation or evaluators is not set: give a file, or the sources of STS-B")
        for split, split_sentences in self.sentences.items():
            if 0 < len(split_sentences) < world_size():
                raise UserError(f"data.{split}: it has {len(split_sentences)} sentences, fewer than there are devices")
        self.rows = self.rows or dict(self._read())

    def _read(self) -> Iterator[tuple[str, TrainingRows]]:
        evaluated = {  # not documents: those of a search may be those of training
            split: {
                sentence
                for evaluator in self.evaluators.values()
                for prompt, sentences in evaluator.by_prompt(split).items()
                if prompt != DOCUMENT
                for sentence in sentences
            }
            for split in self.sentences
        }
        prompts = self.templates.prompts
        evaluator_prompts = (
            [name if name in prompts else None for name in evaluator.by_prompt(VALIDATION)]
            for evaluator in self.evaluators.values()
        )
        validated = next(filter(any, evaluator_prompts), [])  # the prompts of the first evaluator that has some
        for number, (name, dataset) in enumerate(self.sets.items()):
            # PyTorch's generators use the low 32 bits of a seed only
            seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0]) if number else self.seed
            with prefixed_by_dataset(name):
                rows = dataset.read(
                    self.tokenizer, self.max_length, seed, evaluated, self.templates, self.segment, validated
                )
                if dataset.sampler:
                    self._groups[name] = dataset.sampler(rows)
            yield name, rows

    def train_dataloader(self) -> DataLoader[dict[str, Any]]:
        """Return batches of views, [batch, views, tokens]; each rank gets its part of every contrastive batch."""
        options: dict[str, Any] = {"batch_size": None, "collate_fn": dict, "pin_memory": self._on_gpu}  # whole batches
        if self.num_workers:
            from simcse_pl.data.workers import worker_options

            options |= worker_options(self.num_workers)
        make = {name: rows.batch for name, rows in self.rows.items()}
        if self._groups and self.trainer is not None:  # machines may round differently
            self._groups = self.trainer.strategy.broadcast(self._groups)
        return ContrastiveDataLoader(Batches(make), sampler=self._batches(), **options)

    def batches_of_epoch(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self._batches())

    @property
    def _on_gpu(self) -> bool:
        """Whether batches are for a GPU, which copies pinned memory while the host goes on."""
        return self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"

    def _batches(self) -> MixedBatchSampler:
        batches = {}
        for name, rows in self.rows.items():
            with prefixed_by_dataset(name):
                size, groups = self.sets[name].batch_size, self._groups.get(name)
                batches[name] = ContrastiveBatches(len(rows.chosen), size, world_size(), rank(), rows.seed, groups)
        return MixedBatchSampler(batches, self.sampling, self.seed, self._start)

    def held_out_batches(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield batches of the held-out rows of a training set, [batch, views, tokens], always the same.

        Each rank gets its part of a batch.
        """
        rows = replace(self.rows[name], chosen=self.rows[name].held_out)
        batches = ContrastiveBatches(len(rows.chosen), self.sets[name].batch_size, world_size(), rank(), self.seed)
        for drawn, counts in batches.draw(0):
            yield rows.batch([(0, row) for row in drawn]) | {"counts": counts}

    def state_dict(self) -> dict[str, int]:
        assert self.trainer is not None
        done: Any = self.trainer.fit_loop.epoch_loop.batch_progress.current
        return {"epoch": self.trainer.current_epoch, "batch": done.processed}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._start = state_dict["epoch"], state_dict["batch"]

    def val_dataloader(self) -> DataLoader[Tokens]:
        return self.sentences[VALIDATION].loader(self._on_gpu)

    def test_dataloader(self) -> DataLoader[Tokens]:
        """Return batches of the test sentences; raise UserError if there are none."""
        if not len(self.sentences[TEST]):
            raise UserError("data.test is not set: give a file")
        return self.sentences[TEST].loader(self._on_gpu)


def prefixed_by_dataset(dataset: str) -> AbstractContextManager[None]:
    """Begin the message of a UserError with the option of a training set, if it has a name."""
    option = f"data.sets.{dataset}" if dataset else ""
    return prefixed(option, f"'{option or 'data'}.columns=[NAME,NAME]'")
