"""The config of a run: its folders, the resolvers of conf/, and the rows of a sweep.

A row is a set of options, which is applied to the config of a job (see conf/sweep/table_3_dropout.yaml). Hydra's
sweeper runs the rows of a table by name, as values of the option `sweep.row`.
"""

import functools
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from simcse_pl.run_folder import SWEEP_FILE, run_label
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import cache_folder

_PACKAGE = Path(__file__).parent
# A wheel contains the configs; in a clone they are beside the package.
_IN_WHEEL = _PACKAGE / "conf"
CONF = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent / "conf"


@functools.cache
def config_folders() -> list[str]:
    """Return the folders with configs of installed packages, which have an entry point `simcse_pl.configs`."""
    return [f"file://{_folder_of(entry.value)}" for entry in entry_points(group="simcse_pl.configs")]


def _folder_of(package: str) -> Path:
    """Return the folder of a package such as `my_package.conf`, without importing `my_package`, which may be slow."""
    top, *inside = package.split(".")
    spec = find_spec(top)
    folders = [Path(location).joinpath(*inside) for location in (spec and spec.submodule_search_locations) or ()]
    if not (found := next(filter(Path.is_dir, folders), None)):
        raise UserError(f"an installed package names its configs {package}, which do not exist: uninstall or repair it")
    return found


def with_row(config: DictConfig) -> DictConfig:
    """Return the config with the options of the job's row, or unchanged if it has no rows."""
    sweep = config.get("sweep")
    if not sweep or not sweep.get("rows"):
        return config
    rows = {str(name): name for name in sweep.rows}
    if str(sweep.row) not in rows:
        raise UserError(f"sweep.row={sweep.row}: choose one of {', '.join(rows)}; -m runs them all")
    row = sweep.rows[rows[str(sweep.row)]]
    resolved: Any = OmegaConf.to_container(row, resolve=True)
    for option in (name for name, value in walk(resolved) if value is None):
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
    return ",".join(f"'{name}'" for name, values in rows.items() if all(value is not None for _, value in walk(values)))


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
        return run_label(Path(_root_.run_dir or HydraConfig.get().run.dir))  # --cfg has made no folder
    hydra = HydraConfig.get()
    multirun = Path(hydra.sweep.dir) / SWEEP_FILE
    given = options_of_sweep(OmegaConf.load(multirun)) if multirun.is_file() else []
    parsed = [one for one in OverridesParser.create().parse_overrides(given) if not one.is_sweep_override()]
    fixed = [f"{one.get_key_element()}={one.get_value_element_as_str()}" for one in parsed]  # a job has 0.001 for 1e-3
    options = (option.replace("'", "") for option in hydra.overrides.task if option not in fixed)
    return " ".join([str(_root_.run_name), *options])


def options_of_sweep(config: Any) -> list[str]:
    """Return the options that a sweep's config sets for its jobs, and then those of the command line."""
    given: Any = OmegaConf.to_container(config.hydra.overrides.task)
    return [*(f"{name}={value}" for name, value in (config.hydra.sweeper.get("params") or {}).items()), *given]


def walk(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of all options of a config, and of their own options."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield f"{path}{key}", value
        yield from walk(value, f"{path}{key}.")


for _resolver in (cache_folder, config_folders, job_name, row_names, sweep_group):
    OmegaConf.register_new_resolver(_resolver.__name__, _resolver, replace=True)
