"""The Hydra callbacks that end a multirun with a table of its jobs."""

import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from simcse_pl.report.report import encoder_tables
from simcse_pl.report.results import Result, read
from simcse_pl.report.tables import RESULTS_FILE, job_folders, show, sweep_table


class SweepTable(Callback):
    """Prints the table of all training jobs when the last has ended; the exit status is 1 if one has no results."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Read the jobs' folders, so that it does not matter in which process they ran."""
        folder = Path(config.hydra.sweep.dir).absolute()
        show(sweep_table(folder))
        exit_if_jobs_failed(folder)


class EvaluationTables(Callback):
    """Prints all jobs of evaluate.py side by side; the exit status is 1 if one could not measure all it should."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Read the jobs' folders; encoders of one label are told apart by their job's number."""
        folder = Path(config.hydra.sweep.dir).absolute()
        found = [(job.name, read(job)) for job in job_folders(folder) if (job / RESULTS_FILE).is_file()]
        results = [(job, result) for job, result in found if isinstance(result, Result)]
        labels = [result.label for _, result in results]
        named = [
            result.model_copy(update={"label": f"{result.label} ({job})"}) if labels.count(result.label) > 1 else result
            for job, result in results
        ]
        for table in encoder_tables(named, config.aggregation):
            show(table.printed())
        exit_if_jobs_failed(folder)
        if any(result.failed for _, result in results):
            raise SystemExit(1)


def exit_if_jobs_failed(folder: Path) -> None:
    """Say which jobs of a sweep have no results, and exit with status 1 if one has none."""
    failed = [job.name for job in job_folders(folder) if not (job / RESULTS_FILE).is_file()]
    if failed:
        print(f"error: failed jobs: {', '.join(failed)}", file=sys.stderr)
        raise SystemExit(1)
