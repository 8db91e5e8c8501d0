"""How tables and figures name and scale the metrics of evaluators."""

from collections.abc import Mapping
from typing import Literal, get_args

Aggregation = Literal["all", "mean", "wmean"]  # of the subsets of an STS task
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
SPEARMAN = "spearman"  # the metric of a run that does not name one
_SHARES = (
    *("spearman", "pearson", "accuracy", "reverse_accuracy", "average_precision", "f1"),
    *("map", "mrr", "ndcg", "precision", "recall"),
)
_LOWER = ("alignment", "uniformity", "loss", "perplexity")
CURVES = ("gram_sum", "largest_eigenvalue", "nonnegative_cosines", "trace")  # of GeometryCurves; not scores
_HEADINGS = {"spearman": "Spearman", "pearson": "Pearson"}


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
