"""Tables of training runs and sweeps, in the terminal. Correlations are in [-1, 1] in the results, and x 100 here."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

RESULTS_FILE = "results.json"


def hundredfold(score: float) -> str:
    """A correlation as the tables show it."""
    return f"{100 * score:.2f}"


def run_table(results: Mapping[str, Any], folder: Path) -> Group:
    """What a training run ends with: its scores, and where everything is."""
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
        table.add_row(name, split, hundredfold(scores["spearman"]), *geometry)
    places = {"encoder": "encoder", "checkpoints": "checkpoints", "curves": "metrics.csv", "results": RESULTS_FILE}
    where = "\n".join(f"{what:<13}{folder / path}" for what, path in places.items())
    return Group(table, Text(where, no_wrap=True, overflow="ignore"))


def job_folders(folder: Path) -> list[Path]:
    """The folders of a sweep's jobs, in their order."""
    return sorted((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def sweep_table(folder: Path) -> Table:
    """The jobs of a Hydra multirun: what each was given and what came out, a row a job.

    Args:
        folder: of the sweep; each job has a folder in it, named by its number.
    """
    jobs = job_folders(folder)
    settings = {job: _overrides(job) for job in jobs}
    names = list(dict.fromkeys(name for overrides in settings.values() for name in overrides))
    varied = [name for name in names if len({settings[job].get(name) for job in jobs}) > 1]
    table = Table(title=f"Spearman x 100\n{folder}")
    for column in ("job", *varied):
        table.add_column(column)
    for column in ("dev before", "dev best", "test"):
        table.add_column(column, justify="right")
    for job in jobs:
        scores = ["failed", "", ""]
        if (path := job / RESULTS_FILE).is_file():
            results = json.loads(path.read_text(encoding="utf-8"))
            scores = [hundredfold(results[stage]["spearman"]) for stage in ("before", "best", "test")]
        table.add_row(job.name, *(settings[job].get(name, "") for name in varied), *scores)
    return table


def show(table: Table | Group) -> None:
    """Print to the terminal; where there is none, in lines of 160 characters. Paths are never broken."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table, crop=False)


def _overrides(job: Path) -> dict[str, str]:
    path = job / "config" / "overrides.yaml"
    lines = list(OmegaConf.load(path)) if path.is_file() else []
    return {name: value for name, _, value in (str(line).partition("=") for line in lines)}
