"""The report of a multirun. Hydra imports this file at each start; what only a multirun needs is imported later."""

import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from simcse_pl.run_folder import RESULTS_FILE, job_folders
from simcse_pl.utils.terminal import hydra_option, report_error


class MultirunReport(Callback):
    """Print what `simcse report` does of the finished jobs, and save it in the folder of the multirun.

    The exit status is 1 if a job or a task has failed.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check the options of all jobs, and print the folder of a sweep, what is left of it and how to continue it.

        The exit status is 2 if a value is wrong.
        """
        from simcse_pl.lab.multirun import check_jobs

        folder, left = Path(config.hydra.sweep.dir), ""
        if config.hydra.runtime.choices["hydra/sweeper"] == "basic":
            jobs = check_jobs(config)
            done = sum((folder / str(job) / RESULTS_FILE).is_file() for job in range(jobs))
            left = f", {jobs - done} of {jobs} jobs left" if done else ""
        if config.hydra.job.config_name == "train":
            again = hydra_option("hydra.sweep.dir", folder)
            print(f"sweep in {folder}{left}; to continue it, repeat the command with {again}", flush=True)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Wait for the jobs that still run, report the finished ones, and print which failed."""
        from simcse_pl.lab.multirun import JOBS

        JOBS.wait()
        folder = Path(config.hydra.sweep.dir)
        jobs = job_folders(folder)
        finished = [job for job in jobs if (job / RESULTS_FILE).is_file()]
        complete = True
        try:
            if finished:
                from simcse_pl.lab.report import report_multirun

                complete = report_multirun(folder, finished, config.get("aggregation", "all"))
        except Exception as error:  # Hydra turns the exceptions of a callback into warnings
            report_error(error, bool(config.get("debug")), "debug=true")
            complete = False
        if failed := [job.name for job in jobs if job not in finished]:
            print(f"error: {len(failed)} of {len(jobs)} jobs failed: {', '.join(failed)}", file=sys.stderr)
        if failed or not complete:
            raise SystemExit(1)
