"""Hydra's loader of configs, with what is wrong told in a line, and what may not be trusted refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from simcse_pl.errors import UserError
from simcse_pl.front_door.names import explained
from simcse_pl.front_door.trust import ALLOW, check_trust
from simcse_pl.sweep_rows import with_row
from simcse_pl.yaml_files import reading

_OPTIONAL = {"auxiliary", "experiment", "logger", "queue", "setting", "size", "sweep"}  # groups


class _CheckedFiles(ConfigRepository):
    """The files that configs are composed of; a damaged one is named."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.scheme() != "file":
            return super().load_config(config_path)
        with reading(Path(source.path, source._normalize_file_name(config_path))):
            return super().load_config(config_path)


class CheckedLoader(ConfigLoaderImpl):
    """Every config of a run comes through here: the command's, and each job's of a sweep."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.repository = _CheckedFiles(config_search_path)

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *further: Any, **options: Any
    ) -> DictConfig:
        """Compose a config, with what its row of a sweep sets in it, where one is chosen.

        Raises:
            UserError: an option or a choice that does not exist, a value that cannot be read, a file that is damaged,
                a row that there is not, or a config that may not be trusted (see `check_trust`).
        """
        overrides = [self._none_chosen(own) for own in overrides]
        try:
            config = super().load_configuration(config_name, overrides, run_mode, *further, **options)
        except HydraException as error:
            names = dict.fromkeys(self._names(config_name, overrides, run_mode))
            raise UserError(explained(error, names)) from error
        except RecursionError as error:
            raise UserError("a config has itself among its defaults") from error
        check_trust(config, overrides, _allowed(overrides))
        return config if OmegaConf.select(config, "sweep.row") is None else with_row(config)

    def _none_chosen(self, override: str) -> str:
        """`queue=null` in the words that Hydra has for it."""
        group, _, choice = override.partition("=")
        if choice not in ("", "null") or group not in self.get_group_options("", ObjectType.GROUP):
            return override
        if group not in _OPTIONAL:
            choices = ", ".join(self.get_group_options(group, ObjectType.CONFIG))
            raise UserError(f"{override}: there has to be one; choose one of {choices}")
        return f"{group}=[]"

    def _names(self, config_name: str | None, overrides: list[str], run_mode: RunMode) -> Iterator[str]:
        """The options that there are with the groups chosen, as far as these can be read."""
        groups = self.get_group_options("", ObjectType.GROUP)
        chosen = [own for own in overrides if own.partition("=")[0] in groups]
        for kept in (chosen, []):
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


def _allowed(overrides: list[str]) -> list[str]:
    """The value of `allow_classes`: of the command line alone, as a config could allow itself anything."""
    given = [own for own in overrides if own.lstrip("+").startswith(f"{ALLOW}=")]
    values = [override.value() for override in OverridesParser.create().parse_overrides(given)]
    return [str(name) for value in values for name in (value if isinstance(value, list) else [value])]
