"""Evaluators: measurements on validation and test data, during training and by `simcse evaluate`."""

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import torch

from simcse_pl.data.formats import Layout, OpenedTable
from simcse_pl.data.rows import LabelledRows, ReadOptions, rows_of
from simcse_pl.data.sources import open_source
from simcse_pl.evaluation.metrics import alignment, correlations, uniformity
from simcse_pl.evaluation.sts import SPLITS, STSB_SOURCES, ScoredPair, StsTask, load_stsb
from simcse_pl.option_checks import check_arguments
from simcse_pl.results import TEST, VALIDATION
from simcse_pl.utils.errors import COLUMNS, UserError, prefixed, reraise_as
from simcse_pl.utils.tensors import Encode, cosine_similarity, encode_columns
from simcse_pl.utils.types import Names

log = logging.getLogger(__name__)
POSITIVE_SCORE = 0.8  # pairs with a score above this share of the highest are positives: 4 of 5 in the paper
Data = TypeVar("Data")
Files = str | Sequence[str] | Mapping[str, str | Mapping[str, Any]] | None


@dataclass(frozen=True, kw_only=True)
class EvaluationFile(Layout):
    """A file, and how to read it.

    Args:
        file: the file, several files with the same columns, or a dataset of the hub.
        columns: the columns to read, by name or by position from 0; None for the first ones.
        split: the split of a dataset of the hub; by default, an evaluator reads the one that is measured.
        label_names: the words for the labels 0, 1, ...; None for numbers and the words that are known.
        format, separator, header, encoding: how the file is written; see Layout.
    """

    file: str | Sequence[str]
    columns: Sequence[int | str] | None = None
    split: str = "test"
    label_names: Names = None

    def pairs(self, score: bool = False) -> LabelledRows:
        """Return an iterator over pairs of sentences, each with its score or the number of its label, if asked for.

        With `score`, a column of scores or labels follows those of the sentences. The errors are those of `rows_of`.
        """
        from simcse_pl.data.columns import check_order, what_is_named

        table = open_source(self.file, self, self.split, self.columns or ())
        columns = self.columns or range(min(2 + score, table.width))
        if len(columns) < 2 + score:
            given = f"columns={[*columns]}" if self.columns else f"it has {table.layout}"
            needed = "two of sentences"
            if score:
                needed += " and one of scores (evaluators=retrieval reads queries and answers)"
            raise UserError(f"{self.file}: {given}: name {needed}")
        if self.columns:  # rows may differ in the others
            table = _resized(table, table.width)
        else:
            check_order(table, range(2))
            named = [what_is_named(table.name(i)) for i in range(table.width)]
            if score and (named[2] == "ids" or (named[2] != "labels" and "labels" in named)):
                scores = f"the scores would be column {table.name(2)}"
                raise UserError(f"{self.file}: {scores}: name all three by {COLUMNS}")
        sentences, score_column = self.columns and self.columns[:2], columns[2] if score else None
        options = ReadOptions(columns=sentences, score_column=score_column, label_names=self.label_names)
        return rows_of(table, options, first=2)

    def rows(self, negatives: bool = True) -> LabelledRows:
        """Return an iterator over rows of sentences. Their number may differ; a sentence that is missing is ''.

        Without `negatives`, a column with their name is a UserError.
        """
        from simcse_pl.data.columns import NEGATIVES

        table = open_source(self.file, self, self.split, self.columns or ())
        if not (negatives or self.columns) and any(map(NEGATIVES.fullmatch, table.header or ())):
            raise UserError(f"{self.file} has negatives: name the query and its positives by {COLUMNS}")
        records = list(table.records)
        width = max([table.width, *(len(cells) for _, cells in records)])
        table = _resized(replace(table, records=iter(records)), width)
        return rows_of(table, ReadOptions(columns=self.columns, on_invalid_row="blank"), warn=log.debug)


def _resized(table: OpenedTable, width: int) -> OpenedTable:
    """Return a table whose rows are cut to a width, or filled up with empty cells."""

    def resized(cells: Sequence[Any] | str) -> Sequence[Any] | str:
        return cells if isinstance(cells, str) else [*cells, *[""] * (width - len(cells))][:width]

    records = ((location, resized(cells)) for location, cells in table.records)
    header = table.header and [*table.header, *map(str, range(table.width, width))]
    return replace(table, records=records, width=width, header=header)


class Evaluator(ABC):
    """A measurement of an encoder on a validation set, a test set, or both.

    Its constructor takes `validation` and `test` (the options data.validation and data.test), and the options of its
    config, which have priority. Training constructs it on the first device and sends it to the others, so it must be
    picklable. `simcse evaluate` measures the test set; its `validation` is None.

    Attributes:
        metrics: the names of metrics that are known before a measurement.
    """

    metrics: Sequence[str] = ()

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
        """Return the metrics of a split by name; `encode` takes sentences of this split only."""


def make_evaluators(makers: Mapping[str, Callable[..., Evaluator]], **files: Any) -> dict[str, Evaluator]:
    """Return the evaluators of a run by name, each made from `files`: `validation` and `test`.

    Files in the config of an evaluator replace them.
    """
    for name, make in makers.items():
        if isinstance(make, Evaluator):
            raise UserError(f"evaluators.{name}: its config needs `_partial_: true`")
    made: dict[str, Evaluator] = {}
    for name, make in makers.items():
        if make is not None:
            with prefixed("", f"'evaluators.{name}.columns=[NAME,NAME]'"):
                made[name] = make(**files | getattr(make, "keywords", {}))
    dev, test = ({text for each in made.values() for text in each.sentences(split)} for split in (VALIDATION, TEST))
    if test and test <= dev:
        log.warning("data.test: data.validation has all its sentences too, so the scores of the test may be too high")
    return made


def source_of(evaluators: Mapping[str, Evaluator], split: str) -> str:
    """Return the names of the data of a split."""
    names = (evaluator.name(split) for evaluator in evaluators.values() if len(evaluator.sentences(split)))
    return ", ".join(dict.fromkeys(names))


def _numbers(name: str, metrics: Any) -> dict[str, float]:
    with reraise_as(f"evaluators.{name} returned {metrics!r}: return a number for each metric, by name"):
        return {metric: float(value) for metric, value in metrics.items()}


def measure(evaluators: Mapping[str, Evaluator], encode: Encode, split: str) -> dict[str, float]:
    """Return the metrics of all evaluators. If several have a metric, the evaluator's name is before it.

    Raises:
        UserError: two metrics have the same name nevertheless.
    """
    measured = {
        name: _numbers(name, evaluator(encode, split))
        for name, evaluator in evaluators.items()
        if len(evaluator.sentences(split))
    }
    # the others are measured on another split
    elsewhere = (evaluator.metrics for name, evaluator in evaluators.items() if name not in measured)
    counts = Counter(metric for metrics in (*measured.values(), *elsewhere) for metric in metrics)
    named = [
        (metric if counts[metric] == 1 else f"{name}/{metric}", value)
        for name, metrics in measured.items()
        for metric, value in metrics.items()
    ]
    if len(dict(named)) < len(named):
        raise UserError("evaluators: one is named like a file of another, so their metrics have one name: rename it")
    return dict(named)


class FileEvaluator(Evaluator, Generic[Data]):
    """An evaluator whose splits are one file each, or several files with names.

    The metrics of a file with a name are NAME/METRIC, and METRIC is their mean.

    Args:
        validation, test: a file, files by name, or None. A file can be a mapping with the arguments of EvaluationFile,
            which replace those in `reading`.
        reading: arguments of EvaluationFile for all files, such as `columns`.

    Attributes:
        file_class: EvaluationFile, or a subclass with further arguments.
        sets: the data of each split, by the names of the files; a file without a name has the name ''.
    """

    file_class = EvaluationFile

    def __init__(self, validation: Files = None, test: Files = None, **reading: Annotated[Any, EvaluationFile]) -> None:
        self.files = {VALIDATION: validation, TEST: test}
        self.sets: dict[str, dict[str, Data]] = {VALIDATION: {}, TEST: {}}
        for split, files in self.files.items():
            with_names = isinstance(files, Mapping) and "file" not in files
            named: Any = files if with_names else {} if files is None else {"": files}
            if "mean" in named:
                raise UserError(f"data.{split}.mean: this is the name of the mean over files: choose another")
            for name, file in named.items():
                options = file if isinstance(file, Mapping) else {"file": str(file)}
                check_arguments(self.file_class, options, f"data.{split}.{name}" if name else f"data.{split}")
                with prefixed(f"data.{split}"):
                    self.sets[split][str(name)] = self.read(self.file_class(**{"split": split, **reading, **options}))

    @abstractmethod
    def read(self, file: EvaluationFile) -> Data:
        """Read a file."""

    @abstractmethod
    def sentences_of(self, data: Data) -> Sequence[str]:
        """Return the sentences of a file."""

    @abstractmethod
    def measure(self, encode: Encode, data: Data) -> dict[str, float]:
        """Return the metrics of a file."""

    def name(self, split: str) -> str:
        files = self.files[split] or ()
        if isinstance(files, Mapping):
            files = files.get("file", files)
        return Path(files).name if isinstance(files, str | Path) else ", ".join(map(str, files))

    def sentences(self, split: str) -> list[str]:
        return [sentence for data in self.sets[split].values() for sentence in self.sentences_of(data)]

    def __call__(self, encode: Encode, split: str) -> dict[str, float]:
        measured = {name: self.measure(encode, data) for name, data in self.sets[split].items()}
        if list(measured) == [""]:
            return measured[""]
        metrics = {f"{name}/{metric}": value for name, values in measured.items() for metric, value in values.items()}
        for metric in next(iter(measured.values()), {}):
            metrics[metric] = float(np.mean([values[metric] for values in measured.values()]))
        return metrics


class LabelledPairs(FileEvaluator[list[ScoredPair]]):
    """Pairs of sentences with a number, or a word for it."""

    labels: Mapping[float, float] = {}  # what the numbers of a file become, if only these are possible

    def read(self, file: EvaluationFile) -> list[ScoredPair]:
        pairs = []
        for (first, second), score in file.pairs(score=True):
            assert isinstance(score, float)
            if self.labels and score not in self.labels:
                raise UserError(f"{file.file}: it has the label {score:g}, and labels should be 0 or 1")
            pairs.append(ScoredPair(first, second, self.labels.get(score, score)))
        if len({pair.score for pair in pairs}) < 2:
            raise UserError(f"{file.file}: all rows have the number {pairs[0].score:g}; different ones are needed")
        return pairs

    def sentences_of(self, data: list[ScoredPair]) -> list[str]:
        return [sentence for pair in data for sentence in (pair.first, pair.second)]


class ScoredPairs(LabelledPairs):
    """Pairs of sentences with a similarity score: STS-B, or files of two sentences and a score.

    The metrics are `spearman`, the correlation of cosines with the scores, and the `alignment` and `uniformity` of
    section 2 of the paper. Positives of the alignment have more than 80 % of the file's highest score, as in the paper.
    If no score is above 0, there are none, and the alignment is NaN.

    Args:
        validation: a file, files by name, or sources of STS-B, whose dev split is the validation set (see
            sts.load_stsb), as a list or as text such as `senteval, hub`: Hydra cannot replace a list by files
            with names.
        test: a file or files by name. None: STS-B's test split if `validation` is STS-B, otherwise no test set.
        senteval_dir: a SentEval bundle, for STS-B.
        reading: see FileEvaluator.

    Attributes:
        stsb: the splits of STS-B that are used, `dev` and `test`; empty if other files are used.

    Raises:
        UserError: a file or STS-B cannot be read, a score is neither a number nor a word that is known, or all scores
            of a file are equal.
    """

    def __init__(
        self, validation: Files = None, test: Files = None, senteval_dir: str | Path | None = None, **reading: Any
    ) -> None:
        self.stsb: dict[str, StsTask] = {}
        sources = [name.strip() for name in validation.split(",")] if isinstance(validation, str) else validation
        if isinstance(sources, Sequence) and set(sources) <= set(STSB_SOURCES):
            self.stsb = load_stsb(sources, senteval_dir, SPLITS if test is None else SPLITS[:1])
            validation = None
        super().__init__(validation, test, **reading)
        splits = zip((VALIDATION, TEST), self.stsb.values(), strict=False)
        self.sets |= {split: {"": task.pairs} for split, task in splits}

    def name(self, split: str) -> str:
        return self.stsb["dev"].name if self.files[split] is None and self.stsb else super().name(split)

    def measure(self, encode: Encode, data: list[ScoredPair]) -> dict[str, float]:
        first, second = encode_columns(encode, [pair.first for pair in data], [pair.second for pair in data])
        scores = np.array([pair.score for pair in data])
        positive = torch.from_numpy(scores > POSITIVE_SCORE * scores.max())
        return {
            "spearman": correlations(cosine_similarity(first, second).numpy(), scores)[0],
            "alignment": float(alignment(first[positive], second[positive])),
            "uniformity": float(uniformity(torch.cat([first, second]))),
        }
