"""The table and the paths that `simcse train` prints at the end. Correlations and shares are shown x 100."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.text import Text

from simcse_pl.results.metrics import CURVES, SPEARMAN, decimals, factor, heading, scale_note
from simcse_pl.results.run_files import CURVES_FILE, RESULTS_FILE
from simcse_pl.utils.tables import Table


def run_table(results: Mapping[str, Any]) -> Table:
    """Return the metrics on dev and test, before training and of the best checkpoint.

    The first column is the metric that chose the checkpoint. A run without a test set has no rows for it. The title
    names the validation set, and the test set if it has another name.

    Args:
        results: the content of the run's results.json.
    """
    stages = [("dev", results["before"]), ("dev", results["best"])]
    if results["test"] or results["test_before"]:
        stages += [("test", results["test_before"]), ("test", results["test"])]
    found = dict.fromkeys(metric for _, scores in stages for metric in scores if metric not in CURVES)
    metrics = list(dict.fromkeys([results.get("monitor", SPEARMAN), *found]))
    columns: dict[str, list[Any]] = {
        "": ["before training", f"best, step {results['best_step']} of {results['steps']}"] * (len(stages) // 2),
        "split": [split for split, _ in stages],
    }
    for metric in metrics:
        values = [scores.get(metric) for _, scores in stages]
        columns[heading(metric, direction=True)] = [math.nan if v is None else factor(metric) * v for v in values]
    scale = scale_note(*metrics)
    shown = {heading(metric, direction=True): decimals(metric) for metric in metrics}
    title, test_set = results["validation"], results.get("test_set")
    if test_set and test_set != title:
        title += f", tested on {test_set}"
    return Table("run", title + f" ({scale})" * bool(scale), pd.DataFrame(columns), shown)


def run_places(folder: Path, dashboards: Sequence[str] = ()) -> Text:
    """Return the paths of a run's files, and of `dashboards`, in lines that are never wrapped."""
    places = {"encoder": "encoder", "checkpoints": "checkpoints", "curves": CURVES_FILE, "results": RESULTS_FILE}
    where = [f"{what:<13}{folder / path}" for what, path in places.items()]
    where += [f"{'W&B':<13}{place}" for place in dashboards]
    return Text("\n".join(where))
