"""The table and the paths that `simcse train` prints at the end. Correlations and shares are shown x 100."""

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
    stages = {("before training", "dev"): results["before"], ("best", "dev"): results["best"]}
    if results["test"] or results["test_before"]:
        stages |= {("before training", "test"): results["test_before"], ("best", "test"): results["test"]}
    found = dict.fromkeys(metric for scores in stages.values() for metric in scores if metric not in CURVES)
    metrics = list(dict.fromkeys([results.get("monitor", SPEARMAN), *found]))
    frame = pd.DataFrame([*stages.values()]).reindex(columns=metrics).astype(float) * [factor(m) for m in metrics]
    headings = {heading(metric, direction=True): decimals(metric) for metric in metrics}
    frame.columns = pd.Index(headings)
    best = f"best, step {results['best_step']} of {results['steps']}"
    frame.insert(0, "", [best if stage == "best" else stage for stage, _ in stages])
    frame.insert(1, "split", [split for _, split in stages])
    scale, title, test_set = scale_note(*metrics), results["validation"], results.get("test_set")
    if test_set and test_set != title:
        title += f", tested on {test_set}"
    return Table("run", title + f" ({scale})" * bool(scale), frame, headings)


def run_places(folder: Path, dashboards: Sequence[str] = ()) -> Text:
    """Return the paths of a run's files, and of `dashboards`, in lines that are never wrapped."""
    places = {"encoder": "encoder", "checkpoints": "checkpoints", "curves": CURVES_FILE, "results": RESULTS_FILE}
    where = [f"{what:<13}{folder / path}" for what, path in places.items() if (folder / path).exists()]
    where += [f"{'W&B':<13}{place}" for place in dashboards]
    return Text("\n".join(where))
