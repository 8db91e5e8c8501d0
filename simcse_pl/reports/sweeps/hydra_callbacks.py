"""The Hydra callbacks that end a multirun with a table of its jobs."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from simcse_pl.reports.evaluation_report import encoder_tables
from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_results import read_sweeps
from simcse_pl.reports.sweeps.sweep_tables import sweep_tables
from simcse_pl.results.evaluation_results import Result, read
from simcse_pl.results.run_files import RESULTS_FILE, job_folders
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tables import show


class SweepTable(Callback):
    """Prints what was trained side by side when the last job has ended, as `simcse report` does.

    The exit status is 1 if a job has no results, or could not measure all it should.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Say where it is, which a report and whoever goes on with it need to know."""
        folder = config.hydra.sweep.dir
        print(
            f"sweep in {folder}; with hydra.sweep.dir={folder} the same command goes on where this one stops",
            flush=True,
        )

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Read the jobs' folders, so that it does not matter in which process they ran."""
        folder = Path(config.hydra.sweep.dir).absolute()
        finished = any((job / RESULTS_FILE).is_file() for job in job_folders(folder))
        with _mistakes_end_it():
            sweeps = read_sweeps({str(folder): folder}) if finished else []
        for sweep in sweeps:
            for table in sweep_tables(group_by_seed(sweep)):
                show(table.printed())
        if sweeps:
            print(f"figure and files: simcse report {config.hydra.sweep.dir}")
        exit_if_jobs_failed(folder)
        if any(run.failed for sweep in sweeps for run in sweep.runs):
            raise SystemExit(1)


class EvaluationTables(Callback):
    """Prints all jobs of evaluate.py side by side; the exit status is 1 if one could not measure all it should."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Read the jobs' folders; encoders of one label are told apart by their job's number."""
        folder = Path(config.hydra.sweep.dir).absolute()
        with _mistakes_end_it():
            found = [(job.name, read(job)) for job in job_folders(folder) if (job / RESULTS_FILE).is_file()]
        results = [(job, result) for job, result in found if isinstance(result, Result)]
        labels = [result.label for _, result in results]
        named = [
            result.model_copy(update={"label": f"{result.label} ({job})"}) if labels.count(result.label) > 1 else result
            for job, result in results
        ]
        with _mistakes_end_it():
            tables = encoder_tables(named, config.aggregation)
        for table in tables:
            show(table.printed())
        exit_if_jobs_failed(folder)
        if any(result.failed for _, result in results):
            raise SystemExit(1)


@contextlib.contextmanager
def _mistakes_end_it() -> Iterator[None]:
    """A line and exit status 1 for a mistake: of another exception than SystemExit Hydra makes a warning."""
    try:
        yield
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from error


def exit_if_jobs_failed(folder: Path) -> None:
    """Say which jobs of a sweep have no results, and exit with status 1 if one has none."""
    jobs = job_folders(folder)
    failed = [job.name for job in jobs if not (job / RESULTS_FILE).is_file()]
    if failed:
        print(f"error: {len(failed)} of {len(jobs)} jobs failed: {', '.join(failed)}", file=sys.stderr)
        raise SystemExit(1)
