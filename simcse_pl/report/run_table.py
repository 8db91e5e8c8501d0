"""The table of a training run. Correlations are in [-1, 1] in the results, and x 100 here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from simcse_pl.run_files import CURVES_FILE, RESULTS_FILE


def run_table(results: Mapping[str, Any], folder: Path, dashboards: Sequence[str] = ()) -> Group:
    """What a training run ends with: its scores, and where everything is; `dashboards` are not in its folder."""
    table = Table(title=f"{results['validation']} (Spearman x 100)")
    for column in ("", "split", "Spearman", "alignment", "uniformity"):
        table.add_column(column, justify="left" if column in ("", "split") else "right")
    rows = (
        ("before training", "dev", results["before"]),
        (f"best, step {results['best_step']} of {results['steps']}", "dev", results["best"]),
        ("", "test", results["test"]),
    )
    for name, split, scores in rows:
        geometry = (f"{scores[metric]:.3f}" for metric in ("alignment", "uniformity"))
        table.add_row(name, split, f"{100 * scores['spearman']:.2f}", *geometry)
    places = {"encoder": "encoder", "checkpoints": "checkpoints", "curves": CURVES_FILE, "results": RESULTS_FILE}
    where = [f"{what:<13}{folder / path}" for what, path in places.items()]
    where += [f"{'W&B':<13}{place}" for place in dashboards]
    return Group(table, Text("\n".join(where), no_wrap=True, overflow="ignore"))
