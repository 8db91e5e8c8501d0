"""The results of an evaluation: what each protocol measures, and the shape of the results.json of `simcse evaluate`."""
# ruff: noqa: RUF012 - pydantic copies default values

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import PlainSerializer

from simcse_pl.results import Number, Shape
from simcse_pl.utils.text import Neighbour

Aggregation = Literal["all", "mean", "wmean"]  # how STS tasks combine their subsets (see StsScores)
CorrelationMetric = Literal["spearman", "pearson"]
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC")  # the order of the paper's Table E.1
PROBING_TASKS = (  # in the order of Conneau et al. (2018)
    *("Length", "WordContent", "Depth", "TopConstituents", "BigramShift"),
    *("Tense", "SubjNumber", "ObjNumber", "OddManOut", "CoordinationInversion"),
)
SCIKIT_LEARN = "scikit-learn"  # the default classifier of transfer tasks


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
    """Scores of one transfer or probing task."""

    task: str
    protocol: str | None = None
    rows: int | None = None
    accuracy: Number = math.nan  # in [0, 1]
    f1: float | None = None  # of class 1, in [0, 1], for tasks with pairs
    dev_accuracy: Number = math.nan  # chose the regularization; the mean over the outer folds
    classifier: str = SCIKIT_LEARN


class BenchmarkScores(Shape):
    """Main score of a task of the mteb package, the mean over its splits and subsets."""

    task: str
    type: str  # such as Retrieval
    metric: str  # such as ndcg_at_10
    score: Number = math.nan  # most are in [0, 1]


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


class SuiteResults(Shape):
    """Results by protocol."""

    sts: list[StsScores] = []
    transfer: list[TransferScores] = []  # of transfer and probing tasks
    benchmarks: list[BenchmarkScores] = []
    geometry: Geometry | None = None
    retrieval: RetrievalResults | None = None
    own: OwnData | None = None
    failed: Mapping[str, str] = {}  # error messages of the tasks that were not measured

    @classmethod
    def collected(cls, results: Sequence[Shape], failed: Mapping[str, str]) -> "SuiteResults":
        """Return what tasks have returned, by their protocols."""
        lists = {StsScores: "sts", TransferScores: "transfer", BenchmarkScores: "benchmarks"}
        single = {Geometry: "geometry", RetrievalResults: "retrieval", OwnData: "own"}
        content: dict[str, Any] = {single[type(part)]: part for part in results if type(part) in single}
        content |= {name: [part for part in results if type(part) is shape] for shape, name in lists.items()}
        return cls(**content, failed=failed)


class About(Shape):
    """Which encoder was measured, and how."""

    label: str
    encoder: str = ""
    settings: Mapping[str, Any] = {}
    paper: Mapping[Literal["table", "row"], str] | None = None  # the paper's row that the user named
    fingerprint: str | None = None


class Result(SuiteResults, About):
    """The results.json of `simcse evaluate`."""

    warnings: list[str] = []  # why scores may mislead
    dims: Mapping[str, SuiteResults] = {}  # by the number of first dimensions to which vectors are cut

    def results_by_dim(self) -> dict[int, "Result"]:
        """Return the results by the number of dimensions, those of all dimensions first."""
        results = {self.settings.get("dim", 0): self}
        for dim, measured in self.dims.items():
            settings = {**self.settings, "truncate_dim": int(dim)}
            cut = Result(**dict(measured), label=f"{self.label}, {dim} dimensions", settings=settings)
            results.setdefault(int(dim), cut)
        return results
