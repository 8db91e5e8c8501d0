"""Rows of a sweep: a row is a set of options, which is applied to the config of a job.

A sweep of a table of the paper names its rows like the table, and lists the options of each:

    sweep:
      rows:
        0.1: {model: {dropout: 0.1}}
        fixed 0.1: {model: {dropout: 0.1}, module: {shared_dropout_mask: true}}

Hydra's sweeper runs the rows by name, as values of the option `sweep.row`.
"""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simcse_pl.sweeps.resolvers import lacking
from simcse_pl.utils.errors import UserError


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
