"""Hydra callbacks that print a table of all jobs at the end of a multirun.

Hydra imports this module at each start, so pandas and scipy are imported at the end of a multirun only.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from simcse_pl.results.run_files import RESULTS_FILE, job_folders
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.terminal import show


class SweepTable(Callback):
    """Print the tables of `simcse report` when the last training job has ended.

    The exit status is 1 if a job has no results or could not measure everything.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the sweep's folder and how to continue the sweep."""
        folder = config.hydra.sweep.dir
        print(f"sweep in {folder}; to continue it, repeat the command with hydra.sweep.dir={folder}", flush=True)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the tables, read from the jobs' folders."""
        from simcse_pl.reports.sweeps.seed_groups import group_by_seed
        from simcse_pl.reports.sweeps.sweep_results import read_sweeps
        from simcse_pl.reports.sweeps.sweep_tables import sweep_tables

        folder = Path(config.hydra.sweep.dir).absolute()
        sweeps = []
        if any((job / RESULTS_FILE).is_file() for job in job_folders(folder)):
            with _exit_on_error():
                sweeps = read_sweeps({str(folder): folder})
            for table in (table for sweep in sweeps for table in sweep_tables(group_by_seed(sweep))):
                show(table.printed())
            print(f"figure and files: simcse report {config.hydra.sweep.dir}")
        _exit_if_jobs_failed(folder, any(run.failed for sweep in sweeps for run in sweep.runs))


class EvaluationTables(Callback):
    """Print the results of all jobs of evaluate.py side by side.

    The exit status is 1 if a job has no results or could not measure everything.
    """

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the tables; the job's number is appended to a label that occurs twice."""
        from simcse_pl.reports.evaluation_report import encoder_tables
        from simcse_pl.results.evaluation_results import Result, read

        folder = Path(config.hydra.sweep.dir).absolute()
        with _exit_on_error():
            found = [(job.name, read(job)) for job in job_folders(folder) if (job / RESULTS_FILE).is_file()]
            results = [(job, result) for job, result in found if isinstance(result, Result)]
            labels = [result.label for _, result in results]
            named = [
                result.model_copy(update={"label": f"{result.label} ({job})"})
                if labels.count(result.label) > 1
                else result
                for job, result in results
            ]
            for table in encoder_tables(named, config.aggregation):
                show(table.printed())
        _exit_if_jobs_failed(folder, any(result.failed for _, result in results))


@contextlib.contextmanager
def _exit_on_error() -> Iterator[None]:
    """Print a UserError and exit with status 1; Hydra turns other exceptions of a callback into warnings."""
    try:
        yield
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from error


def _exit_if_jobs_failed(folder: Path, incomplete: bool) -> None:
    """Exit with status 1 if a job has no results, and print which, or if results are incomplete."""
    jobs = job_folders(folder)
    failed = [job.name for job in jobs if not (job / RESULTS_FILE).is_file()]
    if failed:
        print(f"error: {len(failed)} of {len(jobs)} jobs failed: {', '.join(failed)}", file=sys.stderr)
    if failed or incomplete:
        raise SystemExit(1)
