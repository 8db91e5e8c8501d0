"""The results of evaluations: how metrics are named and scaled, and the shape of results.json."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import read_json
from simcse_pl.utils.text import Neighbour

Aggregation = Literal["all", "mean", "wmean"]  # of the subsets of an STS task
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC")  # the order of the paper's Table E.1
PROBING_TASKS = (  # in the order of Conneau et al. (2018)
    *("Length", "WordContent", "Depth", "TopConstituents", "BigramShift"),
    *("Tense", "SubjNumber", "ObjNumber", "OddManOut", "CoordinationInversion"),
)
SCIKIT_LEARN = "scikit-learn"
CLASSIFIERS = (SCIKIT_LEARN, "pytorch", "pytorch_fast")  # of transfer tasks
SPEARMAN = "spearman"  # the metric of a run that does not name one
_SHARES = (
    *("spearman", "pearson", "accuracy", "reverse_accuracy", "average_precision", "f1"),
    *("map", "mrr", "ndcg", "precision", "recall"),
)
_LOWER = ("alignment", "uniformity", "loss", "perplexity")
CURVES = ("gram_sum", "largest_eigenvalue", "nonnegative_cosines", "trace")  # of GeometryCurves; not scores
_HEADINGS = {"spearman": "Spearman", "pearson": "Pearson"}
Metric = Literal["spearman", "pearson"]
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]  # null is NaN


def _kind(metric: str) -> str:
    """Return the kind of a metric: `recall` for `german/recall@5`."""
    return metric.rpartition("/")[2].partition("@")[0]


def by_file(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return metrics by the name of their file, which stands before the slash: `german` for `german/spearman`.

    `mean` has the means over several files. Otherwise a file without a name is empty.
    """
    files: dict[str, dict[str, float]] = {}
    for name, value in metrics.items():
        file, _, metric = name.rpartition("/")
        files.setdefault(file, {})[metric] = value
    means = files.pop("", {})
    of_files = {metric for values in files.values() for metric in values}
    return files | ({"mean" if of_files & means.keys() else "": means} if means else {})


def factor(metric: str) -> int:
    """Return 100 for correlations and shares, which are shown x 100, and 1 for other metrics."""
    return 100 if _kind(metric) in _SHARES else 1


def decimals(metric: str) -> int:
    """Return the number of decimals to show."""
    return 2 if factor(metric) == 100 else 3


def lower_is_better(metric: str) -> bool:
    """Return whether low values of a metric are known to be better."""
    return _kind(metric) in _LOWER


def heading(metric: str, direction: bool = False) -> str:
    """Return the name for a heading.

    Args:
        metric: the name, such as `german/spearman`.
        direction: append an arrow that says which values are better, if that is known.
    """
    data, slash, name = metric.rpartition("/")
    kind = _kind(metric)
    arrow = " ↓" if lower_is_better(metric) else " ↑" if kind in _SHARES else ""
    return f"{data}{slash}{_HEADINGS.get(name, name)}{arrow * direction}"


def scale_note(*metrics: str) -> str:
    """Return the kinds of metrics that are shown x 100, such as `Spearman x 100`; empty without any."""
    kinds = dict.fromkeys(_kind(metric) for metric in metrics if factor(metric) == 100)
    return f"{', '.join(_HEADINGS.get(kind, kind) for kind in kinds)} x 100" if kinds else ""


def score_name(metric: str, mode: str = "max") -> str:
    """Return the name and the scale of the metric that chooses the checkpoint, such as `Spearman x 100`."""
    return heading(metric) + " x 100" * (factor(metric) == 100) + ", lower is better" * (mode == "min")


class Shape(BaseModel):
    """Content of a results file. Numbers that are missing are NaN."""

    model_config = ConfigDict(strict=True, frozen=True)


Content = TypeVar("Content", bound=Shape)


class Correlation(Shape):
    """Correlations of predicted and human scores, in [-1, 1]; NaN if either scores are constant, up to rounding."""

    spearman: Number = math.nan
    pearson: Number = math.nan
    pairs: int | None = None


class StsScores(Shape):
    """Scores of one STS task."""

    task: str
    split: str = "test"
    pairs: int | None = None
    all: Correlation = Correlation()  # over the pairs of all subsets together, as in the paper
    mean: Correlation = Correlation()  # over the subsets
    wmean: Correlation = Correlation()  # over the subsets, weighted by their number of pairs
    subsets: Mapping[str, Correlation] = {}


class TransferScores(Shape):
    """Scores of one transfer task."""

    task: str
    protocol: str | None = None
    rows: int | None = None
    accuracy: Number = math.nan  # in [0, 1]
    f1: float | None = None  # of class 1, in [0, 1], for tasks with pairs
    dev_accuracy: Number = math.nan  # by which the regularization was chosen, averaged over the outer folds
    classifier: str = "scikit-learn"  # or pytorch, pytorch_fast


class Geometry(Shape):
    """Geometry of an encoder's embeddings, measured on scored pairs."""

    data: str = "unnamed data"
    sentences: int | None = None  # two per pair, repeated ones included
    positives: int | None = None  # pairs that alignment is measured on
    alignment: Number = math.nan  # equation 2 of the paper
    uniformity: Number = math.nan  # equation 3
    mean_cosine: Number = math.nan  # over all pairs of different rows: the anisotropy of Ethayarajh (2019)
    spectrum: list[Number] = []  # singular values divided by the largest, descending (Appendix F)
    effective_rank: Number = math.nan
    similarities: Mapping[str, list[float]] = {}  # cosine of every pair, by band of its human score (Appendix G)
    gram_sum: Number = math.nan  # this and the following: see evaluation.metrics.gram_bound
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


class BenchmarkScores(Shape):
    """Main score of a task of the mteb package, the mean over its splits and subsets."""

    task: str
    type: str  # such as Retrieval
    metric: str  # such as ndcg_at_10
    score: Number = math.nan  # most are in [0, 1]


class SuiteResults(Shape):
    """Results by protocol."""

    sts: list[StsScores] = []
    transfer: list[TransferScores] = []  # and probing
    benchmarks: list[BenchmarkScores] = []
    geometry: Geometry | None = None
    retrieval: RetrievalResults | None = None
    own: OwnData | None = None
    failed: Mapping[str, str] = {}  # error messages of the tasks that were not measured


class Result(SuiteResults):
    """The results of one encoder, and how they were measured."""

    label: str
    encoder: str = ""
    fingerprint: str | None = None
    settings: Mapping[str, Any] = {}
    paper: Mapping[Literal["table", "row"], str] | None = None  # the paper's row that the user named
    dims: Mapping[str, SuiteResults] = {}  # of the first dimensions of the vectors alone, by their number

    def of_dims(self) -> dict[int, "Result"]:
        """Return the results by the number of dimensions, those of all dimensions first."""
        results = {self.settings.get("dim", 0): self}
        for dim, measured in self.dims.items():
            settings = {**self.settings, "truncate_dim": int(dim)}
            cut = Result(**dict(measured), label=f"{self.label}, {dim} dimensions", settings=settings)
            results.setdefault(int(dim), cut)
        return results


def read_shape(shape: type[Content], file: Path) -> Content:
    """Read a results.json.

    Raises:
        UserError: the file is not JSON, a value is missing or has the wrong type; the message names the first.
    """
    try:
        return shape.model_validate(read_json(file))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "the file"
        raise UserError(f"{file} is not a results file: {place}: {problem['msg']}") from error
