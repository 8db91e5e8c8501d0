"""Rows of a sweep, and the OmegaConf resolvers of conf/.

A row is a set of options, which is applied to the config of a job. A sweep of a table
of the paper names its rows like the table, and lists the options of each:

    sweep:
      rows:
        0.1: {model: {dropout: 0.1}}
        fixed 0.1: {model: {dropout: 0.1}, module: {shared_dropout_mask: true}}

Hydra's sweeper runs the rows by name, as values of the option `sweep.row`.

The commands `train` and `evaluate` import this file before their configs are resolved.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from simcse_pl.results.run_files import run_label
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import cache_folder


def with_row(config: DictConfig) -> DictConfig:
    """Return the config with the options of the job's row, or unchanged if it has no rows.

    Raises:
        UserError: the row does not exist, or has an option without a value.
    """
    sweep = config.get("sweep")
    if not sweep or not sweep.get("rows"):
        return config
    rows = {str(name): name for name in sweep.rows}
    if str(sweep.row) not in rows:
        raise UserError(f"sweep.row={sweep.row}: choose one of {', '.join(rows)}; -m runs them all")
    row = sweep.rows[rows[str(sweep.row)]]
    resolved: Any = OmegaConf.to_container(row, resolve=True)
    for option in lacking(resolved):
        raise UserError(f"sweep.row={sweep.row}: {option} has no value; see what the row needs in conf/sweep/")
    config = with_values(config, OmegaConf.to_container(row))
    config.sweep.rows = {}  # the other rows do not belong to this run
    return config


def with_values(config: DictConfig, values: Any) -> DictConfig:
    """Return a copy of a config with other values for some options; OmegaConf raises an error for an unknown option.

    Args:
        config: the config, which is not changed.
        values: a mapping, nested like the config. A node with a `_target_` replaces the config's node.
    """
    config = config.copy()
    OmegaConf.set_struct(config, True)
    _set(config, values)
    return config


def _set(node: DictConfig, values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping) and "_target_" not in value and OmegaConf.is_dict(node[name]):
            _set(node[name], value)
        else:
            node[name] = value


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
    """Return the name of a run in W&B: its folder; in a sweep, `run_name` and the options that differ between jobs."""
    if not in_sweep():
        return run_label(Path(_root_.run_dir))
    hydra = HydraConfig.get()
    multirun = Path(hydra.sweep.dir) / "multirun.yaml"  # Hydra's sweeper writes the options of all jobs here
    given = OmegaConf.load(multirun).hydra.overrides.task if multirun.is_file() else []
    options = (option.replace("'", "") for option in hydra.overrides.task if option not in given)
    return " ".join([str(_root_.run_name), *options])


for _resolver in (cache_folder, job_name, row_names, sweep_group):
    OmegaConf.register_new_resolver(_resolver.__name__, _resolver, replace=True)
