"""The table and the paths that `simcse train` prints at the end. Correlations and shares are shown x 100."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pandas as pd
from rich.text import Text

from simcse_pl.results import CURVES, TrainingRun, by_file, decimals, factor, heading, scale_note
from simcse_pl.run_folder import CURVES_FIGURE, CURVES_FILE, RESULTS_FILE
from simcse_pl.utils.tables import Table


def run_table(run: TrainingRun) -> Table:
    """Return the metrics on dev and test, before training and of the best checkpoint, with one row per file.

    The first column of scores is the metric that chose the checkpoint. A run without a test set has no rows for it. The
    title names the validation set, its language if it is the default, and the test set if it has another name.
    """
    before, best = "before training", f"best, step {run.best_step} of {run.steps}"
    stages = {(before, "dev"): run.before, (best, "dev"): run.best}
    if run.test or run.test_before:
        stages |= {(before, "test"): run.test_before, (best, "test"): run.test}
    rows = [
        ((*stage, file), scores)
        for stage, metrics_of_stage in stages.items()
        for file, scores in (by_file(metrics_of_stage) or {"": {}}).items()
    ]
    measured = (metric for _, scores in rows for metric in scores if metric not in CURVES)
    metrics = list(dict.fromkeys([run.monitor.rpartition("/")[2], *measured]))
    frame, headings = metric_frame([scores for _, scores in rows], metrics)
    names = pd.DataFrame([name for name, _ in rows], columns=["", "split", "file"])
    frame = (names if names["file"].any() else names.drop(columns="file")).join(frame)
    title = run.validation + ", in English" * (run.validation in ("STS-B", "sample"))
    if run.test_set not in ("", run.validation):
        title += f", tested on {run.test_set}"
    if scale := scale_note(*metrics):
        title += f" ({scale})"
    warnings = [f"warning: {warning}" for warning in run.warnings]
    return Table("run", title, frame, headings, warnings)


def printed_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a run with hashes of files as short as that of the commit."""
    names = {"content": "data hash", "models": "model hash", "measured on": "dev/test hash"}
    short = {name: re.sub(r"\b(\w{12})\w+", r"\1", settings.get(name, "")) for name in names}
    return {names.get(name, name): short.get(name, value) for name, value in settings.items()}


def run_paths(folder: Path, run: TrainingRun, seconds: float, dashboards: Sequence[str] = ()) -> Text:
    """Return the time of a run, the paths of its files and `dashboards`, and code to use its encoder; never wrapped."""
    paths = {"encoder": "encoder", "checkpoints": "checkpoints", "curves": CURVES_FILE, "figure": CURVES_FIGURE}
    paths["results"] = RESULTS_FILE
    where = [f"{what:<13}{folder / path}" for what, path in paths.items() if (folder / path).exists()]
    where += [f"{'W&B':<13}{address}" for address in dashboards]
    pooling = run.settings.get("pooling", "")
    own = f', pooling="{pooling}"' if "." in pooling else ""  # code of the user, which is named each time
    code = f'from simcse_pl import SimCSE; vectors = SimCSE("{folder / "encoder"}"{own}).encode(["A sentence."])'
    return Text("\n".join([f"{'time':<13}{timedelta(seconds=round(seconds))}", *where, f"{'use':<13}{code}"]))


def metric_frame(rows: Sequence[Mapping[str, float]], metrics: Sequence[str]) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the metrics of each row as tables show them, mostly x 100, and the decimals of each column."""
    frame = pd.DataFrame(rows).reindex(columns=metrics).astype(float) * [factor(metric) for metric in metrics]
    digits = {heading(metric, direction=True): decimals(metric, frame[metric]) for metric in metrics}
    return frame.set_axis([*digits], axis=1), digits
