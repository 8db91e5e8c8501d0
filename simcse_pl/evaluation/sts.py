"""The STS tasks: their pairs, from SentEval, the Hub or the project's sample, and their protocol."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simcse_pl.data import sample
from simcse_pl.evaluation.metrics import correlations
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import read_lines
from simcse_pl.utils.tensors import Encode, cosine_similarity, encode_columns
from simcse_pl.utils.text import as_number

if TYPE_CHECKING:
    from simcse_pl.evaluation.results import StsScores

log = logging.getLogger(__name__)
STS_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")  # the order of the paper's Table 5
STS_TASKS_WITH_DEV = ("STS-B", "SICK-R")
SPLITS = ("dev", "test")
_HUB_STSB = "mteb/stsbenchmark-sts"
STSB_SOURCES = {
    "senteval": "STS-B in {}",
    "hub": f"STS-B on the hub ({_HUB_STSB})",
    "sample": "the project's own sample, which is not STS-B",
}
_SICK_FILES = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}


class NotInBundleError(UserError):
    """The bundle has no file of a task."""


@dataclass(frozen=True)
class ScoredPair:
    """Two sentences and their similarity as people scored it, 0 (unrelated) to 5 (the same meaning)."""

    first: str
    second: str
    score: float


@dataclass(frozen=True)
class StsTask:
    """The scored pairs of a task by subset (STS-B, SICK-R and the sample have one)."""

    name: str
    split: str
    subsets: dict[str, list[ScoredPair]]

    @property
    def pairs(self) -> list[ScoredPair]:
        """The pairs of all subsets, in order."""
        return [pair for subset in self.subsets.values() for pair in subset]

    @property
    def sentences(self) -> list[str]:
        """The sentences of all pairs, in order."""
        return [sentence for pair in self.pairs for sentence in (pair.first, pair.second)]

    def __call__(self, encode: Encode, device: object = None) -> "StsScores":
        """Correlate cosine similarities with human scores (Appendix B of the paper).

        `encode` is called once, with the distinct sentences.
        """
        from simcse_pl.evaluation.results import Correlation, StsScores  # training reads the pairs alone

        def correlation(predicted: np.ndarray, human: np.ndarray) -> Correlation:
            spearman, pearson = correlations(predicted, human)
            return Correlation(spearman=spearman, pearson=pearson, pairs=len(human))

        pairs = self.pairs
        first, second = encode_columns(encode, [pair.first for pair in pairs], [pair.second for pair in pairs])
        predicted, human = cosine_similarity(first, second).numpy(), np.array([pair.score for pair in pairs])
        sizes = [len(subset) for subset in self.subsets.values()]
        parts = (np.split(scores, np.cumsum(sizes)[:-1]) for scores in (predicted, human))
        subsets = {name: correlation(*scores) for name, *scores in zip(self.subsets, *parts, strict=True)}
        scores = np.array([(subset.spearman, subset.pearson) for subset in subsets.values()])
        averages = (np.average(scores, axis=0, weights=weights).tolist() for weights in (None, sizes))
        mean, wmean = (Correlation(spearman=spearman, pearson=pearson) for spearman, pearson in averages)
        scored = {"all": correlation(predicted, human), "mean": mean, "wmean": wmean}
        return StsScores(task=self.name, split=self.split, pairs=len(pairs), subsets=subsets, **scored)


def load_sts_task(senteval_dir: str | Path | None, name: str, split: str = "test") -> StsTask:
    """Load one of `STS_TASKS` from a SentEval bundle (its data/downstream).

    Args:
        senteval_dir: contains STS/STS12-en-test to STS16-en-test, STS/STSBenchmark and SICK, or some of them. Without
            it, the task is the project's sample.
        name: the task.
        split: `test`; STS-B and SICK-R also have `dev` and `train`.

    Returns:
        The task, without the pairs that have no score.

    Raises:
        UserError: the bundle does not have the task or split (NotInBundleError), or one of its files is damaged.
    """
    if not senteval_dir:
        return load_sample(split)
    root = Path(senteval_dir)
    match name:
        case "STS-B":
            rows = tab_separated_rows(root / "STS" / "STSBenchmark" / f"sts-{split}.csv")
            subsets = {split: _pairs(rows, (5, 6, 4))}
        case "SICK-R":
            rows = tab_separated_rows(root / "SICK" / _SICK_FILES[split], header=True)
            subsets = {split: _pairs(rows, (1, 2, 3))}
        case _:
            folder = root / "STS" / f"{name}-en-{split}"
            files = sorted(folder.glob("STS.input.*.txt"))
            if not files:
                raise NotInBundleError(f"no STS.input files in {folder}")
            subsets = {
                path.name.removeprefix("STS.input.").removesuffix(".txt"): _yearly_subset(path) for path in files
            }
    return StsTask(name, split, subsets)


def load_stsb(
    sources: Sequence[str], senteval_dir: str | Path | None, splits: Sequence[str] = SPLITS
) -> dict[str, StsTask]:
    """Load splits of STS-B from the first of `sources` that has them, and log which one that is.

    Args:
        sources: some of `senteval` (skipped if `senteval_dir` is None or empty), `hub` (skipped with a warning if it
            fails) and `sample`, in the order of trying. The sample is the project's own pairs, not STS-B.
        senteval_dir: see `load_sts_task`.
        splits: `dev`, `test` or both.
    """
    load = {
        "senteval": lambda split: load_sts_task(str(senteval_dir), "STS-B", split),
        "hub": _stsb_of_the_hub,
        "sample": load_sample,
    }
    failures, hub_error = [], ""
    for source in sources:
        if source == "senteval" and not senteval_dir:
            failures.append("senteval_dir is not set")
            continue
        try:
            tasks = {split: load[source](split) for split in splits}
        except UserError as error:
            if source != "hub":
                raise
            failures.append(hub_error := str(error))
        else:
            name = STSB_SOURCES[source].format(senteval_dir)
            if hub_error:
                log.warning(
                    "data.validation: STS-B from the hub is not available (%s); in its place: %s", hub_error, name
                )
            for split, task in tasks.items():
                log.info("%s: %d English scored pairs from %s", split, len(task.pairs), name)
            return tasks
    if not failures:
        raise UserError(f"data.validation=[]: choose some of {', '.join(load)}")
    raise UserError(f"data.validation: STS-B is not available ({'; '.join(failures)})")


def load_sample(split: str) -> StsTask:
    """Load the `dev` or `test` split of the project's own scored pairs."""
    rows = tab_separated_rows(Path(sample.path(f"sts_{split}.tsv")), header=True)
    return StsTask("sample", split, {split: _pairs(rows, (1, 2, 0))})


def _stsb_of_the_hub(split: str) -> StsTask:
    from simcse_pl.data.hub_datasets import load_hub_dataset

    rows = load_hub_dataset(_HUB_STSB, "validation" if split == "dev" else split)
    texts = ((f"{_HUB_STSB}, row {i}", [r["sentence1"], r["sentence2"], r["score"]]) for i, r in enumerate(rows, 1))
    return StsTask("STS-B", split, {split: _pairs(texts, (0, 1, 2))})


def _pairs(rows: Iterable[tuple[str, Sequence[str]]], columns: tuple[int, int, int]) -> list[ScoredPair]:
    """Return the pairs of sentences of rows, each with its location for messages; the last column is the score."""
    pairs = []
    for location, cells in rows:
        first, second, text = (cells[i] if i < len(cells) else "" for i in columns)
        score = as_number(text)
        if score is None or not 0 <= score <= 5 or not first.strip() or not second.strip():
            raise UserError(f"{location}: it should have two sentences and a score from 0 to 5")
        pairs.append(ScoredPair(first.strip(), second.strip(), score))
    return pairs


def _yearly_subset(inputs: Path) -> list[ScoredPair]:
    """Read a file of sentences of STS12 to STS16 and its file of scores, which has empty lines for unscored pairs."""
    gold = inputs.with_name(inputs.name.replace("STS.input.", "STS.gs.", 1))
    lines, scores = text_lines(inputs), text_lines(gold)
    if len(lines) != len(scores):
        raise UserError(f"{gold} has {len(scores)} lines and {inputs.name} {len(lines)}: one of them is truncated")
    rows = [
        (f"{inputs}, line {number}", [*[*line.split("\t"), ""][:2], score])
        for number, (line, score) in enumerate(zip(lines, scores, strict=True), 1)
        if score.strip()
    ]
    return _pairs(rows, (0, 1, 2))


def text_lines(path: Path) -> list[str]:
    """Return the lines of a file that is UTF-8, or else Latin-1, as some of SentEval's files are."""
    if not path.is_file():
        raise NotInBundleError(f"no file {path}")
    try:
        return list(read_lines(path, "utf-8-sig"))
    except UserError:
        return list(read_lines(path, "latin-1"))


def tab_separated_rows(path: Path, header: bool = False) -> list[tuple[str, list[str]]]:
    """Return the location and the cells of each line that is not blank, without the header if there is one."""
    lines = [(f"{path}, line {number}", line.split("\t")) for number, line in enumerate(text_lines(path), 1)]
    rows = [(location, cells) for location, cells in lines[header:] if any(map(str.strip, cells))]
    if not rows:
        raise UserError(f"{path} has no rows")
    return rows
