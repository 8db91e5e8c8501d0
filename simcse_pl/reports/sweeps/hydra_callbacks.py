"""Hydra callbacks that print a table of all jobs at the end of a multirun.

Hydra imports this module at each start, so pandas and scipy are imported at the end of a multirun only.
"""

import shlex
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from simcse_pl.results.run_files import RESULTS_FILE, job_folders
from simcse_pl.utils.command_line import hydra_option, report_error
from simcse_pl.utils.terminal import show


class _Tables(Callback, ABC):
    """Print the tables of the finished jobs, and exit with status 1 if a job or a task has failed."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the tables, and the jobs that failed."""
        jobs = job_folders(Path(config.hydra.sweep.dir).absolute())
        finished = [job for job in jobs if (job / RESULTS_FILE).is_file()]
        try:
            complete = self.print_tables(config, finished) if finished else True
        except Exception as error:  # Hydra turns the exceptions of a callback into warnings
            report_error(error, bool(config.get("debug")), "debug=true")
            complete = False
        if failed := [job.name for job in jobs if job not in finished]:
            print(f"error: {len(failed)} of {len(jobs)} jobs failed: {', '.join(failed)}", file=sys.stderr)
        if failed or not complete:
            raise SystemExit(1)

    @abstractmethod
    def print_tables(self, config: DictConfig, jobs: list[Path]) -> bool:
        """Print the tables of finished jobs, and return whether all their tasks were measured."""


class SweepTable(_Tables):
    """Print the tables of `simcse report` when the last training job has ended."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the sweep's folder and how to continue the sweep."""
        folder = config.hydra.sweep.dir
        again = hydra_option("hydra.sweep.dir", folder)
        print(f"sweep in {folder}; to continue it, repeat the command with {again}", flush=True)

    def print_tables(self, config: DictConfig, jobs: list[Path]) -> bool:
        """Print the table of each sweep in the folder."""
        from simcse_pl.reports.sweeps.seed_groups import group_by_seed
        from simcse_pl.reports.sweeps.sweep_results import read_sweeps
        from simcse_pl.reports.sweeps.sweep_tables import sweep_table

        folder = jobs[0].parent
        sweeps = read_sweeps({str(folder): folder})
        for sweep in sweeps:
            show(sweep_table(group_by_seed(sweep)).printed())
        print(f"figure and files: simcse report {shlex.quote(config.hydra.sweep.dir)}")
        return not any(run.failed for sweep in sweeps for run in sweep.runs)


class EvaluationTables(_Tables):
    """Print the results of all jobs of `simcse evaluate` side by side."""

    def print_tables(self, config: DictConfig, jobs: list[Path]) -> bool:
        """Print the tables; the job's number is appended to a label that occurs twice."""
        from simcse_pl.reports.evaluation_report import encoder_tables
        from simcse_pl.results.evaluation_results import Result, read_shape

        results = {job.name: read_shape(Result, job / RESULTS_FILE) for job in jobs}
        labels = [result.label for result in results.values()]
        for job, result in results.items():
            if labels.count(result.label) > 1:
                results[job] = result.model_copy(update={"label": f"{result.label} ({job})"})
        for table in encoder_tables(list(results.values()), config.aggregation):
            show(table.printed())
        return not any(result.failed for result in results.values())
