"""A row of a sweep is config: what it sets is set where a job's config is composed.

A sweep that follows a table of the paper names its rows as the table does, and says what is set for each:

    sweep:
      rows:
        0.1: {model: {dropout: 0.1}}
        fixed 0.1: {model: {dropout: 0.1}, shared_dropout_mask: true}

Hydra's own sweeper runs them, by their names, as values of the option `sweep.row`.
"""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simcse_pl.sweeps.resolvers import lacking
from simcse_pl.utils.errors import UserError


def with_row(config: DictConfig) -> DictConfig:
    """The config with what the job's row sets in it; the config itself where it has no rows.

    Raises:
        UserError: no such row, or none is chosen; the row lacks something, or sets an option that does not exist.
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
        raise UserError(f"sweep.row={sweep.row}: its {option} is not there; conf/sweep/ says what it needs")
    config = with_values(config, OmegaConf.to_container(row), f"sweep.rows.{sweep.row}")
    config.sweep.rows = {}  # the other rows say nothing of this run
    return config


def with_values(config: DictConfig, values: Any, place: str) -> DictConfig:
    """A config with other values for some options, nested as the config is.

    Args:
        config: stays as it is.
        values: a plain mapping; what is to be instantiated (`_target_`) is replaced whole.
        place: where the values stand, for the message.

    Raises:
        UserError: an option that does not exist.
    """
    config = config.copy()
    OmegaConf.set_struct(config, False)
    _set(config, values, place)
    OmegaConf.set_struct(config, True)
    return config


def _set(node: DictConfig, values: Any, place: str) -> None:
    for name, value in values.items():
        if name not in node:
            raise UserError(f"{place}.{name}: there is no such option")
        if isinstance(value, Mapping) and "_target_" not in value and OmegaConf.is_dict(node[name]):
            _set(node[name], value, f"{place}.{name}")
        else:
            node[name] = value
