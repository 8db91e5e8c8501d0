"""The table and the paths that train.py prints at the end. Correlations are shown x 100."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.text import Text

from simcse_pl.results.run_files import CURVES_FILE, RESULTS_FILE
from simcse_pl.utils.tables import Table


def run_table(results: Mapping[str, Any]) -> Table:
    """Return the scores on dev and test, before training and of the best checkpoint.

    Args:
        results: the content of the run's results.json.
    """
    stages = [results[stage] for stage in ("before", "best", "test_before", "test")]
    columns = {
        "": ["before training", f"best, step {results['best_step']} of {results['steps']}"] * 2,
        "split": ["dev", "dev", "test", "test"],
        "Spearman ↑": [100 * scores["spearman"] for scores in stages],
        "alignment ↓": [scores["alignment"] for scores in stages],
        "uniformity ↓": [scores["uniformity"] for scores in stages],
    }
    decimals = {"Spearman ↑": 2, "alignment ↓": 3, "uniformity ↓": 3}
    return Table("run", f"{results['validation']} (Spearman x 100)", pd.DataFrame(columns), decimals)


def run_places(folder: Path, dashboards: Sequence[str] = ()) -> Text:
    """Return the paths of a run's files, and of `dashboards`, in lines that are never wrapped."""
    places = {"encoder": "encoder", "checkpoints": "checkpoints", "curves": CURVES_FILE, "results": RESULTS_FILE}
    where = [f"{what:<13}{folder / path}" for what, path in places.items()]
    where += [f"{'W&B':<13}{place}" for place in dashboards]
    return Text("\n".join(where))
