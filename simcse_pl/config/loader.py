"""Hydra's config loader with one-line error messages."""

from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.object_type import ObjectType
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from simcse_pl.config.suggestions import check_added, explain
from simcse_pl.sweeps.rows import with_row
from simcse_pl.utils.errors import UserError

_OPTIONAL = {"auxiliary", "experiment", "logger", "queue", "setting", "size", "sweep"}  # can be null


class CheckedLoader(ConfigLoaderImpl):
    """Composes the config of a command, and of each job of a sweep."""

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *further: Any, **options: Any
    ) -> DictConfig:
        """Compose a config, including the options of the row that `sweep.row` selects.

        Raises:
            UserError: an option, choice or row does not exist, or a value or file is not valid.
        """
        overrides = [self._without_null(own) for own in overrides]
        added = [own for own in overrides if own.startswith("+")]
        if added:
            check_added(added, dict.fromkeys(self.names(config_name, overrides, run_mode)))
        try:
            config = super().load_configuration(config_name, overrides, run_mode, *further, **options)
        except HydraException as error:
            names = dict.fromkeys(self.names(config_name, overrides, run_mode))
            raise UserError(explain(error, names)) from error
        except RecursionError as error:
            raise UserError("a config includes itself in its defaults") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"a config file is not valid YAML: {' '.join(str(error).split())}") from error
        return config if OmegaConf.select(config, "sweep.row") is None else with_row(config)

    def _without_null(self, override: str) -> str:
        """Return `queue=[]` for `queue=null`, which Hydra accepts in a defaults list only."""
        group, _, choice = override.partition("=")
        if choice not in ("", "null") or group not in self.get_group_options("", ObjectType.GROUP):
            return override
        if group not in _OPTIONAL:
            choices = ", ".join(self.get_group_options(group, ObjectType.CONFIG))
            raise UserError(f"{override}: this group cannot be null; choose one of {choices}")
        return f"{group}=[]"

    def names(self, config_name: str | None, overrides: Sequence[str], run_mode: RunMode) -> Iterator[str]:
        """Yield the names of groups and options, with the selected groups if possible."""
        groups = self.get_group_options("", ObjectType.GROUP)
        selected = [own for own in overrides if own.partition("=")[0] in groups]
        for kept in (selected, []):
            try:
                config = super().load_configuration(config_name, kept, run_mode, validate_sweep_overrides=False)
            except HydraException:
                continue
            options = _dotted(OmegaConf.to_container(config))
            yield from groups
            yield from (name for name in options if name.partition(".")[0] != "hydra" and not name.endswith("_"))
            return


def _dotted(node: Any, under: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{under}{key}"
            yield from _dotted(value, f"{under}{key}.")
