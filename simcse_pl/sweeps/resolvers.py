"""OmegaConf resolvers of conf/: the rows of a sweep, and the names of its runs in W&B.

The commands `train` and `evaluate` import this file before their configs are resolved.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from simcse_pl.utils.files import cache_folder


def row_names(_root_: DictConfig) -> str:
    """Return the rows of a sweep as values of `sweep.row`, without rows that have an option set to null."""
    rows: Any = OmegaConf.to_container(_root_.sweep.rows, resolve=True)
    return ",".join(f"'{name}'" for name, values in rows.items() if not any(lacking(values)))


def lacking(values: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield the options that a row sets to null."""
    for name, value in values.items():
        if value is None:
            yield f"{place}{name}"
        elif isinstance(value, Mapping):
            yield from lacking(value, f"{place}{name}.")


def in_sweep() -> bool:
    """Return whether this process runs a job of a sweep."""
    return HydraConfig.initialized() and not OmegaConf.is_missing(HydraConfig.get().job, "num")


def sweep_group(_root_: DictConfig) -> str | None:
    """Return the W&B group of a sweep: its table and its folder; None for a single run."""
    if not in_sweep():
        return None
    table = OmegaConf.select(_root_, "sweep.table")
    return " ".join(part for part in (table, Path(HydraConfig.get().sweep.dir).name) if part)


def job_name(_root_: DictConfig) -> str:
    """Return the name of a run in W&B: `run_name`, and in a sweep the options that differ between the jobs."""
    name = str(_root_.run_name)
    if not in_sweep():
        return name
    hydra = HydraConfig.get()
    multirun = Path(hydra.sweep.dir) / "multirun.yaml"  # Hydra's sweeper writes the options of all jobs here
    given = OmegaConf.load(multirun).hydra.overrides.task if multirun.is_file() else []
    return " ".join([name, *(option.replace("'", "") for option in hydra.overrides.task if option not in given)])


for _resolver in (cache_folder, job_name, row_names, sweep_group):
    OmegaConf.register_new_resolver(_resolver.__name__, _resolver, replace=True)
