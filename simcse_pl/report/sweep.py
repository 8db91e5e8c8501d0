"""The Hydra callback that ends a multirun with a table of its jobs."""

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from simcse_pl.report.tables import show, sweep_table


class SweepTable(Callback):
    """Prints the table of all jobs when the last has ended."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Read the jobs' folders, so that it does not matter in which process they ran."""
        show(sweep_table(Path(config.hydra.sweep.dir).absolute()))
