"""The results.json of `simcse evaluate`: its shape, and reading."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, StringConstraints, ValidationError

from simcse_pl.results.neighbourhood import Neighbour
from simcse_pl.results.run_files import CURVES_FILE, RESULTS_FILE
from simcse_pl.results.trajectory import TrainingTrajectory, read_run
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.files import read_json

Metric = Literal["spearman", "pearson"]
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]  # null is NaN


class Shape(BaseModel):
    """Content of a results file. Numbers that are missing are NaN."""

    model_config = ConfigDict(strict=True, frozen=True)


Content = TypeVar("Content", bound=Shape)


class Correlation(Shape):
    """Correlations of predicted and human scores of a number of pairs, in [-1, 1].

    Both are NaN if the predicted or the human scores are constant, up to the rounding of float64.
    """

    spearman: Number = math.nan
    pearson: Number = math.nan
    pairs: int | None = None


class StsScores(Shape):
    """Scores of one STS task.

    Args:
        all: over the pairs of all subsets together, as in the paper.
        mean: mean over the subsets.
        wmean: mean over the subsets, weighted by their number of pairs.
        subsets: each subset by name.
    """

    task: str
    split: str = "test"
    pairs: int | None = None
    all: Correlation = Correlation()
    mean: Correlation = Correlation()
    wmean: Correlation = Correlation()
    subsets: Mapping[str, Correlation] = {}


class TransferScores(Shape):
    """Scores of one transfer task.

    Args:
        protocol: how the scores were measured.
        rows: number of scored examples.
        accuracy: accuracy on them, in [0, 1].
        f1: F1 of class 1, in [0, 1], for tasks with pairs; None for other tasks.
        dev_accuracy: accuracy that the regularization was chosen by, averaged over the outer folds.
        classifier: `scikit-learn` or `pytorch`.
    """

    task: str
    protocol: str | None = None
    rows: int | None = None
    accuracy: Number = math.nan
    f1: float | None = None
    dev_accuracy: Number = math.nan
    classifier: str = "scikit-learn"


class Geometry(Shape):
    """Geometry of an encoder's embeddings, measured on scored pairs.

    Args:
        data: name of the pairs.
        sentences: number of embeddings: two per pair, repeated sentences included.
        positives: number of pairs that alignment is measured on.
        alignment, uniformity: equations 2 and 3 of the paper.
        mean_cosine: mean over all pairs of different rows: the anisotropy of Ethayarajh (2019).
        spectrum: singular values divided by the largest, descending (Appendix F).
        effective_rank: effective rank of the spectrum.
        similarities: cosine of every pair, by band of its human score (Appendix G).
        top_variance: fraction of variance in the first k principal components, by k.
        isoscore: IsoScore of Rudman et al. (2022).
        gram_sum, largest_eigenvalue, trace, nonnegative: see `evaluation.metrics.gram_bound`.
    """

    data: str = "unnamed data"
    sentences: int | None = None
    positives: int | None = None
    alignment: Number = math.nan
    uniformity: Number = math.nan
    mean_cosine: Number = math.nan
    spectrum: list[Number] = []
    effective_rank: Number = math.nan
    similarities: Mapping[str, list[float]] = {}
    top_variance: Mapping[str, Number] = {}
    isoscore: Number = math.nan
    gram_sum: Number = math.nan
    largest_eigenvalue: Number = math.nan
    trace: Number = math.nan
    nonnegative: Number = math.nan


class QueryResults(Shape):
    """A query and the retrieved sentences, nearest first."""

    query: str
    neighbours: list[Annotated[Neighbour, PlainSerializer(Neighbour._asdict)]] = []


class RetrievalResults(Shape):
    """Queries among the distinct sentences of a file."""

    corpus: str = "an unnamed corpus"
    sentences: int | None = None
    queries: list[QueryResults] = []


class OwnData(Shape):
    """Metrics of evaluators on the user's own data, by name."""

    data: str
    metrics: Mapping[str, Number]


class SuiteResults(Shape):
    """Results by protocol.

    `own` are those on the user's own data, and `failed` has the error messages of the tasks that were not measured.
    """

    sts: list[StsScores] = []
    transfer: list[TransferScores] = []
    geometry: Geometry | None = None
    retrieval: RetrievalResults | None = None
    own: OwnData | None = None
    failed: Mapping[str, str] = {}


class NamedRow(Shape):
    """The paper's row that the user named for a result."""

    table: str
    row: str


class Result(SuiteResults):
    """The results of one encoder, and how they were measured.

    Args:
        dims: results of the first dimensions of the vectors alone, by their number.
    """

    label: str
    encoder: str = ""
    fingerprint: str | None = None
    settings: Mapping[str, Any] = {}
    paper: NamedRow | None = None
    dims: Mapping[Annotated[str, StringConstraints(pattern="^[1-9][0-9]{0,8}$")], SuiteResults] = {}

    def of_dims(self) -> dict[int, "Result"]:
        """Return the results by the number of dimensions, those of all dimensions first."""
        whole = self.settings.get("dim", 0)
        return {whole: self} | {
            int(dim): self.model_copy(
                update={
                    **dict(results),
                    "label": f"{self.label}, {dim} dimensions",
                    "settings": {**self.settings, "truncate_dim": int(dim)},
                    "paper": None,
                    "dims": {},
                }
            )
            for dim, results in self.dims.items()
            if int(dim) != whole
        }


def as_result(report: Any, source: str | Path) -> Result:
    """Validate the content of a results.json of `simcse evaluate` as `validated` does."""
    if isinstance(report, dict) and "best_step" in report:
        raise UserError(f"{source} belongs to a training run: give the run's folder, which has its {CURVES_FILE}")
    return validated(Result, report, source, "evaluate.py")


def validated(shape: type[Content], report: Any, source: str | Path, script: str) -> Content:
    """Validate the content of a results.json from a source, which a script writes.

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
    """Read a results file of `simcse evaluate` or its folder, or the folder of a training run.

    Raises:
        UserError: the file or folder does not exist or is damaged.
    """
    path = Path(path)
    if (path / CURVES_FILE).is_file():
        return read_run(path)
    file = path / RESULTS_FILE if path.is_dir() else path
    if not file.is_file():
        what = f"neither {RESULTS_FILE} nor {CURVES_FILE} in {path}" if path.is_dir() else f"no file or folder {path}"
        raise UserError(f"{what}: give the folder of a run of evaluate.py or train.py")
    return as_result(read_json(file), file)
