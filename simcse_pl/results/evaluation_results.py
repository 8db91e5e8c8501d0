"""What there is to report: results that evaluate.py wrote, their shape checked."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from simcse_pl.results.run_files import CURVES_FILE, RESULTS_FILE
from simcse_pl.results.trajectory import LARGEST, TrainingTrajectory, read_run
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.files import atomic_write, read_json

Shape = TypeVar("Shape", bound=BaseModel)
Aggregation = Literal["all", "mean", "wmean"]
Metric = Literal["spearman", "pearson"]
AGGREGATIONS: tuple[Aggregation, ...] = ("all", "mean", "wmean")


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _can_be_drawn(cls, value: Any) -> Any:
        match value:
            case float() if abs(value) > LARGEST:
                raise ValueError(f"no measure is beyond {LARGEST:g}")
            case list():
                for own in value:
                    cls._can_be_drawn(own)
            case dict():
                cls._can_be_drawn([*value.values()])
        return value


class Correlations(_Shape):
    """Of a task's cosine similarities with its human scores, in [-1, 1]."""

    spearman: float | None = None
    pearson: float | None = None


class Subset(Correlations):
    """One of the files that a task of STS12 to STS16 is made of."""

    pairs: int | None = None


class StsScores(_Shape):
    """An STS task: correlations over all its pairs, and averaged over its subsets (appendix B of the paper)."""

    task: str
    split: str = "test"
    pairs: int | None = None
    all: Correlations = Correlations()
    mean: Correlations = Correlations()
    wmean: Correlations = Correlations()
    subsets: Mapping[str, Subset] = {}
    regressor: Correlations | None = None


class TransferScores(_Shape):
    """A transfer task: fractions in [0, 1]."""

    task: str
    accuracy: float | None = None
    f1: float | None = None
    rows: int | None = None
    protocol: str | None = None
    classifier: str = "scikit-learn"


class Geometry(_Shape):
    """How an encoder's embeddings lie on the sphere."""

    data: str = "unnamed data"
    sentences: int | None = None
    positives: int | None = None
    alignment: float | None = None
    uniformity: float | None = None
    mean_cosine: float | None = None
    spectrum: list[float] = []
    effective_rank: float | None = None
    top_variance: Mapping[str, float] = {}
    isoscore: float | None = None
    gram_sum: float | None = None
    largest_eigenvalue: float | None = None
    trace: float | None = None
    nonnegative: float | None = None
    similarities: Mapping[str, list[float]] = {}


class Neighbour(_Shape):
    """A sentence that was found."""

    sentence: str


class Query(_Shape):
    """A query and what was found, the nearest first."""

    query: str
    neighbours: list[Neighbour] = []


class Retrieval(_Shape):
    """Queries to an index of a file's sentences."""

    corpus: str = "an unnamed corpus"
    sentences: int | None = None
    queries: list[Query] = []


class NamedRow(_Shape):
    """The row of the paper that the user says a result corresponds to."""

    table: str
    row: str


class Result(_Shape):
    """All that was measured of one encoder; what is missing was not."""

    label: str
    encoder: str = ""
    fingerprint: str | None = None
    settings: Mapping[str, Any] = {}
    paper: NamedRow | None = None
    sts: list[StsScores] = []
    transfer: list[TransferScores] = []
    geometry: Geometry | None = None
    retrieval: Retrieval | None = None
    failed: Mapping[str, str] = {}


def as_result(report: Any, source: str | Path) -> Result:
    """The results of one encoder, their shape checked.

    Args:
        report: what evaluate.py writes as results.json.
        source: where they are from, for the message.

    Raises:
        UserError: a value is missing that must be there, or is of another kind than it must be.
    """
    if isinstance(report, dict) and "best_step" in report:
        raise UserError(f"{source} is of a training run: give the run's folder, whose {CURVES_FILE} is drawn")
    return validated(Result, report, source, "evaluate.py")


def validated(shape: type[Shape], report: Any, source: str | Path, door: str) -> Shape:
    """What a front door wrote as results.json, in its shape.

    Raises:
        UserError: a value is missing that must be there, or is of another kind than it must be; it names the first.
    """
    try:
        return shape.model_validate(report)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "the file"
        why = first_line(ValueError(problem["msg"]))
        raise UserError(f"{source} is no results file of {door}: {place}: {why}") from error


def read(path: str | Path) -> Result | TrainingTrajectory:
    """A results file or the folder that it is in, or the folder of a training run.

    Raises:
        UserError: nothing is there, or it is damaged.
    """
    path = Path(path)
    if (path / CURVES_FILE).is_file():
        return read_run(path)
    file = path / RESULTS_FILE if path.is_dir() else path
    if not file.is_file():
        what = f"neither {RESULTS_FILE} nor {CURVES_FILE} in {path}" if path.is_dir() else f"no file or folder {path}"
        raise UserError(f"{what}: give what evaluate.py wrote, or a training run's folder")
    return as_result(read_json(file), file)


def write_results(path: Path, report: Mapping[str, Any]) -> Result:
    """Write a results file of evaluate.py, see `write_json`.

    Args:
        path: of the file.
        report: of plain values, in the shape of `Result`.

    Returns:
        What was written, as `read` gives it back.
    """
    result = as_result(without_nan(report), path)
    write_json(path, report)
    return result


def write_json(path: Path, report: Mapping[str, Any]) -> None:
    """Write plain values, whole beside their place before they are moved there; a number that does not exist is null.

    Args:
        path: of the file.
        report: what front doors write as results.json.
    """
    content = json.dumps(without_nan(report), indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_write(path.parent) as new:
        (new / path.name).write_text(content + "\n", encoding="utf-8")


def without_nan(value: Any) -> Any:
    """A report of plain values in which a number that does not exist is None."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {key: without_nan(own) for key, own in value.items()}
        case list():
            return [without_nan(own) for own in value]
    return value
