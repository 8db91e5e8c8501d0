"""Jobs of a sweep: each takes its row of a table, and one that has run already is not run again.

A sweep that follows a table of the paper names its rows as the table does, and says what is set for each:

    sweep:
      rows:
        0.1: {model: {dropout: 0.1}}
        fixed 0.1: {model: {dropout: 0.1}, fixed_dropout: true}

Hydra's own sweeper runs them, by their names, as values of the option `sweep.row`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simcse_pl.errors import SweepError, UserError, one_line
from simcse_pl.resolvers import lacking
from simcse_pl.resume import given_options
from simcse_pl.run_files import RESULTS_FILE


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


def finished_job(folder: Path, overrides: Sequence[str]) -> dict[str, Any] | None:
    """The results of a job that has run to its end, or None.

    Args:
        folder: the job's.
        overrides: the options that it was given.

    Raises:
        SweepError: the folder holds another job: it is another sweep's, or has other jobs than now.
        UserError: it holds a damaged one.
    """
    path = folder / RESULTS_FILE
    if not path.is_file():
        return None
    try:
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        ran = results["overrides"]
        options = given_options(ran)
        best_score(results)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({one_line(error)}): remove it to run the job anew") from error
    if options != given_options(overrides):
        raise SweepError(f"{folder} holds another job ({' '.join(ran)}): choose another folder")
    return results


def best_score(results: Mapping[str, Any]) -> float:
    """Spearman's correlation on dev of the checkpoint that was kept; nan, which JSON has as null, where there is none.

    Args:
        results: of a job.
    """
    score = results["best"]["spearman"]
    return math.nan if score is None else float(score)


def job_arguments(hydra: Any, folder: Path) -> list[str]:
    """The command line that runs a sweep's job by itself, and in its own folder.

    Args:
        hydra: Hydra's own config in that job.
        folder: the job's.
    """
    flags = ["--config-name", hydra.job.config_name]
    for source in hydra.runtime.config_sources:
        if flag := {"main": "--config-path", "command-line": "--config-dir"}.get(source.provider):
            flags += [flag, source.path]
    own = {"hydra.run.dir": folder, "hydra.sweep.dir": hydra.sweep.dir, "hydra.job.num": hydra.job.num}
    return [
        *flags,
        *hydra.overrides.task,
        *(option for option in hydra.overrides.hydra if not option.startswith(("hydra.mode=", "hydra.sweep.dir="))),
        *(f'{name}="{value}"' if name.endswith("dir") else f"{name}={value}" for name, value in own.items()),
    ]


def describe_job(config: DictConfig, hydra: Any) -> dict[str, Any]:
    """What results.json says of a run besides its scores: choices of groups, options given, seed, and its sweep's row.

    Args:
        config: of the run.
        hydra: Hydra's own.
    """
    sweep = config.get("sweep")
    choices = {group: choice for group, choice in hydra.runtime.choices.items() if "hydra" not in group}
    return {
        "choices": {group: choice for group, choice in choices.items() if choice},
        "overrides": list(hydra.overrides.task),
        "seed": config.seed,
        "sweep": {
            "table": sweep.get("table"),
            "column": sweep.get("column"),
            "row": sweep.get("row"),
            "size": config.size,
        }
        if sweep
        else None,
    }
