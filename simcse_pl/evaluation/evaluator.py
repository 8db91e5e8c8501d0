"""Base classes of the project's evaluators and of your own."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from simcse_pl.data.evaluators import TEST, VALIDATION
from simcse_pl.data.evaluators import Evaluator as Evaluator
from simcse_pl.data.readers.evaluation_files import Columns
from simcse_pl.data.senteval.sts_sets import STSB_SOURCES
from simcse_pl.models.protocols import Encode
from simcse_pl.utils.errors import UserError

Data = TypeVar("Data")
Files = str | Sequence[str] | Mapping[str, str] | None


class FileEvaluator(Evaluator, Generic[Data]):
    """An evaluator whose splits are one file each, or several files with names.

    The metrics of a file with a name are NAME/METRIC, and METRIC is their mean.

    Args:
        validation, test: a file, files by name, or None.
        header: whether the first row of a csv or tsv file has the columns' names; None guesses.
        columns: the columns to read, by name or by position from 0; None for all.

    Attributes:
        split: the split that `read` reads, `validation` or `test`; it chooses the split of a dataset of the hub.

    Raises:
        UserError: a file does not exist or is not valid.
    """

    def __init__(
        self, validation: Files = None, test: Files = None, header: bool | None = None, columns: Columns = None
    ) -> None:
        self.header = header
        self.columns = columns
        self.split = VALIDATION
        self.files = {VALIDATION: validation, TEST: test}
        self.sets = {VALIDATION: self.read_files(validation, VALIDATION), TEST: self.read_files(test, TEST)}

    def read_files(self, files: Files, split: str) -> dict[str, Data]:
        """Return the data of a split by name; a file without a name has the name ''."""
        if files is None:
            return {}
        if isinstance(files, str) and not stsb_sources(files):
            return {"": self._read(files, split)}
        if not isinstance(files, Mapping):
            given = list(files) if isinstance(files, Sequence) and not isinstance(files, str) else files
            raise UserError(f"data.{split}={given}: give one file, or files with names: {{en: dev_en.tsv}}")
        for name in files:
            if "/" in str(name):
                raise UserError(f"data.{split}: the name {name!r} has a slash; choose another one")
        return {str(name): self._read(file, split) for name, file in files.items()}

    def _read(self, file: str, split: str) -> Data:
        self.split = split
        try:
            return self.read(file)
        except UserError as error:
            raise UserError(f"data.{split}: {error}") from error

    @abstractmethod
    def read(self, file: str) -> Data:
        """Read a file of `self.split`."""

    @abstractmethod
    def sentences_of(self, data: Data) -> Sequence[str]:
        """Return the sentences of a file."""

    @abstractmethod
    def measure(self, encode: Encode, data: Data) -> dict[str, float]:
        """Return the metrics of a file."""

    def name(self, split: str) -> str:
        """Return the names of the files."""
        files = self.files[split]
        return Path(files).name if isinstance(files, str) else ", ".join(map(str, files or ()))

    def sentences(self, split: str) -> list[str]:
        """Return the sentences of all files of a split."""
        return [sentence for data in self.sets[split].values() for sentence in self.sentences_of(data)]

    def __call__(self, encode: Encode, split: str) -> dict[str, float]:
        """Return the metrics of each file of a split, and their means."""
        measured = {name: self.measure(encode, data) for name, data in self.sets[split].items()}
        if list(measured) == [""]:
            return measured[""]
        metrics = {f"{name}/{metric}": value for name, own in measured.items() for metric, value in own.items()}
        for metric in next(iter(measured.values()), {}):
            metrics[metric] = float(np.mean([own[metric] for own in measured.values()]))
        return metrics


def stsb_sources(files: Files) -> list[str] | None:
    """Return the sources of STS-B that an option names, as a list or as text such as `senteval, hub`; None for files.

    The configs have text, because Hydra cannot replace a list by files with names.
    """
    if isinstance(files, str):
        names = [name.strip() for name in files.split(",")]
        return names if set(names) <= set(STSB_SOURCES) else None
    return list(files) if isinstance(files, Sequence) else None
