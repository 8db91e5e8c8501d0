"""The results of a training run: how its metrics are named and scaled, and the shape of its results.json.

An evaluator names a metric once, such as `spearman` or `german/recall@5`. Results and tables use this name. Curves,
checkpoints and W&B have the stage before it: `val/spearman`.
"""

import math
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import read_json

SPEARMAN = "spearman"  # the metric of a run that does not name one
CURVES = ("gram_sum", "largest_eigenvalue", "nonnegative_cosines", "trace")  # of GeometryCurves; not scores
VALIDATION, TEST = "validation", "test"  # the splits
STAGES = {VALIDATION: "val", TEST: "test"}  # as Lightning names them
_SPLITS = {"val": VALIDATION, "geometry": VALIDATION, "test": TEST}
_SHARES = (
    *("spearman", "pearson", "accuracy", "reverse_accuracy", "average_precision", "f1"),
    *("map", "mrr", "ndcg", "precision", "recall"),
)
_LOWER = ("alignment", "uniformity", "loss", "perplexity")
_MOST_DECIMALS = 6
_HEADINGS = {"spearman": "Spearman", "pearson": "Pearson"}
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]  # null is NaN


def logged(metric: str, split: str = VALIDATION) -> str:
    """Return the name of a metric in curves, checkpoints and W&B, such as `val/spearman`."""
    return f"{'geometry' if metric in CURVES and split == VALIDATION else STAGES[split]}/{metric}"


def split_and_metric(name: str) -> tuple[str | None, str]:
    """Return the split and the metric of a name in curves; the split is None if it is not measured on one."""
    stage, _, metric = name.partition("/")
    return _SPLITS.get(stage), metric


def metrics_of_split(curves: Mapping[str, float], split: str = VALIDATION) -> dict[str, float]:
    """Return the metrics of one split: `{"spearman": ...}` from `{"val/spearman": ..., "test/spearman": ...}`."""
    metrics = {}
    for name, value in curves.items():
        measured_on, metric = split_and_metric(name)
        if measured_on == split:
            metrics[metric] = value
    return metrics


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
    file_metrics = {metric for values in files.values() for metric in values}
    return files | ({"mean" if file_metrics & means.keys() else "": means} if means else {})


def is_of_file(metric: str, metrics: Container[str]) -> bool:
    """Return whether a metric is of one of several files: `metrics` also has their mean, without the file's name."""
    *names, kind = metric.split("/")
    return any("/".join([*names[:i], *names[i + 1 :], kind]) in metrics for i in range(len(names)))


def factor(metric: str) -> int:
    """Return 100 for correlations and shares, which are shown x 100, and 1 for other metrics."""
    return 100 if _kind(metric) in _SHARES else 1


def decimals(metric: str, values: Iterable[float] = ()) -> int:
    """Return the number of decimals to show; two digits of the smallest of `values`, unless they are shown x 100."""
    if factor(metric) == 100:
        return 2
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    return min(max(3, 1 - math.floor(math.log10(min(sizes)))), _MOST_DECIMALS) if sizes else 3


def lower_is_better(metric: str) -> bool:
    """Return whether low values of a metric are known to be better."""
    return _kind(metric) in _LOWER


def heading(metric: str, direction: bool = False) -> str:
    """Return the name for a heading; `direction` appends an arrow that says which values are better, if known."""
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
    name = heading(metric)
    if factor(metric) == 100:
        name += " x 100"
    return f"{name}, lower is better" if mode == "min" else name


class Shape(BaseModel):
    """Content of a results file, or a part of it. Numbers that are missing are NaN."""

    model_config = ConfigDict(strict=True, frozen=True)


Content = TypeVar("Content", bound=Shape)


class SweepCell(Shape):
    """The place of a job in a sweep."""

    table: str | None = None  # of the paper, by its name in paper.yaml, or another name
    column: str | None = None
    row: str | int | float | None = None
    size: str | None = None  # mini or paper


class TrainingRun(Shape):
    """The results.json of `simcse train`.

    Metrics are by name, NaN if training diverged; those on test are empty without a test set.
    """

    choices: Mapping[str, str | None]  # of the config groups
    overrides: list[str]  # the options that were given
    config_dir: str | None = None  # the folder of the user's configs
    seed: int | None = None
    sweep: SweepCell | None = None  # None for a single run
    settings: Mapping[str, str] = {}
    validation: str = "dev"
    test_set: str = ""
    warnings: list[str] = []  # why scores may be too high
    monitor: str = SPEARMAN  # the metric that chose the checkpoint
    mode: Literal["max", "min"] = "max"  # whether higher or lower values of it are better
    precision: str | None = None
    steps: int | None = None
    best_step: int | None = None
    before: Mapping[str, Number] = {}  # on the validation sets, before training
    test_before: Mapping[str, Number] = {}
    best: Mapping[str, Number]  # on the validation sets, at the best step
    test: Mapping[str, Number]
    trial: Mapping[str, Any] | None = None  # the `values` that a search proposed, and whether it `pruned` the job
    sts: Mapping[str, Number] = {}
    transfer: Mapping[str, Number] = {}
    transfer_dev: Mapping[str, Number] = {}
    failed: Mapping[str, str] = {}  # why a test task was not measured
    transfer_classifier: str = "scikit-learn"

    @property
    def best_score(self) -> float:
        """The metric that chose the checkpoint, at the best step; NaN if training diverged."""
        return self.best[self.monitor]

    def score(self, metrics: Mapping[str, float]) -> float:
        """Return this metric as tables show it, mostly x 100; NaN if `metrics` do not have it."""
        return factor(self.monitor) * metrics.get(self.monitor, math.nan)

    def content(self) -> dict[str, Any]:
        """Return the values to write."""
        return self.model_dump(exclude_unset=True)


def read_shape(shape: type[Content], file: Path) -> Content:
    """Read a results.json."""
    try:
        return shape.model_validate(read_json(file))
    except ValidationError as error:
        problem = error.errors()[0]
        value = ".".join(map(str, problem["loc"])) or "the file"
        raise UserError(f"{file} is not a results file: {value}: {problem['msg']}") from error
