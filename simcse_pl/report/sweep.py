"""The Hydra callback that ends a multirun with a table of its jobs."""

import sys
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from simcse_pl.report.tables import RESULTS_FILE, job_folders, show, sweep_table


class SweepTable(Callback):
    """Prints the table of all jobs when the last has ended; the exit status is 1 if one has no results."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Read the jobs' folders, so that it does not matter in which process they ran."""
        folder = Path(config.hydra.sweep.dir).absolute()
        show(sweep_table(folder))
        failed = [job.name for job in job_folders(folder) if not (job / RESULTS_FILE).is_file()]
        if failed:
            print(f"error: failed jobs: {', '.join(failed)}", file=sys.stderr)
            raise SystemExit(1)
