"""The results.json of evaluate.py: its shape, reading and writing."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from simcse_pl.results.run_files import CURVES_FILE, RESULTS_FILE
from simcse_pl.results.trajectory import TrainingTrajectory, read_run
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.files import atomic_write, read_json

Shape = TypeVar("Shape", bound=BaseModel)
Aggregation = Literal["all", "mean", "wmean"]
Metric = Literal["spearman", "pearson"]
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class Correlations(_Shape):
    """Correlations of cosine similarities with human scores, in [-1, 1]."""

    spearman: float | None = None
    pearson: float | None = None


class Subset(Correlations):
    """One file of a task of STS12 to STS16."""

    pairs: int | None = None


class StsScores(_Shape):
    """Scores of an STS task over all its pairs, and averaged over its subsets (appendix B of the paper)."""

    task: str
    split: str = "test"
    pairs: int | None = None
    all: Correlations = Correlations()
    mean: Correlations = Correlations()
    wmean: Correlations = Correlations()
    subsets: Mapping[str, Subset] = {}
    regressor: Correlations | None = None


class TransferScores(_Shape):
    """Scores of a transfer task, in [0, 1]."""

    task: str
    accuracy: float | None = None
    f1: float | None = None
    rows: int | None = None
    protocol: str | None = None
    classifier: str = "scikit-learn"


class Geometry(_Shape):
    """Measures of the geometry of an encoder's embeddings."""

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
    """A retrieved sentence."""

    sentence: str


class Query(_Shape):
    """A query and the retrieved sentences, nearest first."""

    query: str
    neighbours: list[Neighbour] = []


class Retrieval(_Shape):
    """Queries among the sentences of a file."""

    corpus: str = "an unnamed corpus"
    sentences: int | None = None
    queries: list[Query] = []


class NamedRow(_Shape):
    """The paper's row that the user named for a result."""

    table: str
    row: str


class Result(_Shape):
    """The results of one encoder; values that are missing were not measured."""

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
    """Validate the content of a results.json of evaluate.py.

    Args:
        report: the content.
        source: its origin, for error messages.

    Raises:
        UserError: a required value is missing, or a value has the wrong type.
    """
    if isinstance(report, dict) and "best_step" in report:
        raise UserError(f"{source} is of a training run: give the run's folder, which has its {CURVES_FILE}")
    return validated(Result, report, source, "evaluate.py")


def validated(shape: type[Shape], report: Any, source: str | Path, script: str) -> Shape:
    """Validate the content of a results.json.

    Args:
        shape: the expected model.
        report: the content.
        source: its origin, for error messages.
        script: the script that writes such files, for error messages.

    Raises:
        UserError: a required value is missing, or a value has the wrong type; the message names the first.
    """
    try:
        return shape.model_validate(report)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "the file"
        why = first_line(ValueError(problem["msg"]))
        raise UserError(f"{source} is not a results file of {script}: {place}: {why}") from error


def read(path: str | Path) -> Result | TrainingTrajectory:
    """Read a results file of evaluate.py or its folder, or the folder of a training run.

    Raises:
        UserError: there is no such file or folder, or it is damaged.
    """
    path = Path(path)
    if (path / CURVES_FILE).is_file():
        return read_run(path)
    file = path / RESULTS_FILE if path.is_dir() else path
    if not file.is_file():
        what = f"neither {RESULTS_FILE} nor {CURVES_FILE} in {path}" if path.is_dir() else f"no file or folder {path}"
        raise UserError(f"{what}: give the folder of a run of evaluate.py or train.py")
    return as_result(read_json(file), file)


def write_results(path: Path, report: Mapping[str, Any]) -> Result:
    """Write a results file of evaluate.py, and return its content as `read` does.

    Args:
        path: the file.
        report: plain values in the shape of `Result`.
    """
    result = as_result(without_nan(report), path)
    write_json(path, report)
    return result


def write_json(path: Path, report: Mapping[str, Any]) -> None:
    """Write plain values to a JSON file atomically, with null for NaN and infinity."""
    content = json.dumps(without_nan(report), indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_write(path.parent) as new:
        (new / path.name).write_text(content + "\n", encoding="utf-8")


def without_nan(value: Any) -> Any:
    """Return plain values with None for NaN and infinity."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {key: without_nan(own) for key, own in value.items()}
        case list():
            return [without_nan(own) for own in value]
    return value
