"""Hydra's config loader with one-line error messages, which name the nearest options."""

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.object_type import ObjectType
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from simcse_pl.sweeps.rows import with_row
from simcse_pl.utils.errors import UserError, did_you_mean, first_line

# groups that may be null
_OPTIONAL = {
    *("auxiliary", "experiment", "local", "logger", "method", "model/adapter", "model/quantization", "queue"),
    *("setting", "size", "sweep"),
}
_UNKNOWN = re.compile(r"Could not (?:override|delete from config\.) '(?P<name>[^']+)'")


class CheckedLoader(ConfigLoaderImpl):
    """Composes the config of a command, and of each job of a sweep."""

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *further: Any, **options: Any
    ) -> DictConfig:
        """Compose a config, including the options of the row that `sweep.row` selects.

        Raises:
            UserError: an option, choice or row does not exist, or a value or file is not valid.
        """
        self._check_own_files()
        overrides = [self._without_null(own) for own in overrides]
        if added := [own for own in overrides if own.startswith("+")]:
            _check_added(added, self._names(config_name, overrides))
        try:
            config = super().load_configuration(config_name, overrides, run_mode, *further, **options)
        except HydraException as error:
            raise UserError(_explain(error, self._names(config_name, overrides))) from error
        except RecursionError as error:
            raise UserError("a config includes itself in its defaults") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"a config file is not valid YAML: {' '.join(str(error).split())}") from error
        return config if OmegaConf.select(config, "sweep.row") is None else with_row(config)

    def _check_own_files(self) -> None:
        """Raise UserError if a file of `--config-dir` has the name of a file of the project, which Hydra prefers."""
        folders = {source.provider: Path(source.path) for source in self.get_sources() if source.scheme() == "file"}
        if (own := folders.get("command-line")) and (projects := folders.get("main")):
            for file in sorted(own.rglob("*.yaml")):
                if (other := projects / file.relative_to(own)).is_file() and not other.samefile(file):
                    raise UserError(f"{file}: the project has a config of this name, which would be used; rename yours")

    def _without_null(self, override: str) -> str:
        """Return `queue=[]` for `queue=null`, which Hydra accepts in a defaults list only."""
        group, _, choice = override.partition("=")
        if choice not in ("", "null") or not self.get_group_options(group, ObjectType.CONFIG):
            return override
        if group not in _OPTIONAL:
            choices = ", ".join(self.get_group_options(group, ObjectType.CONFIG))
            raise UserError(f"{override}: this group cannot be null; choose one of {choices}")
        return f"{group}=[]"

    def _names(self, config_name: str | None, overrides: Sequence[str]) -> list[str]:
        """Return the names of groups and options, with the selected groups if possible."""
        groups = self.get_group_options("", ObjectType.GROUP)
        selected = [own for own in overrides if own.partition("=")[0] in {*groups, *_OPTIONAL}]
        for kept in (selected, []):
            try:
                config = super().load_configuration(config_name, kept, RunMode.RUN, validate_sweep_overrides=False)
            except HydraException:
                continue
            options = _dotted(OmegaConf.to_container(config))
            options = (name for name in options if name.partition(".")[0] != "hydra" and not name.endswith("_"))
            return list(dict.fromkeys([*groups, *options]))
        return []


def _dotted(node: Any, under: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{under}{key}"
            yield from _dotted(value, f"{under}{key}.")


def _check_added(overrides: Sequence[str], names: Collection[str]) -> None:
    """Raise UserError if + or ++ adds an option at the top of the config, where no code reads it."""
    for override in overrides:
        name = override.lstrip("+").partition("=")[0].partition("@")[0]
        top = name.partition(".")[0]
        if "/" not in name and top != "hydra" and top not in names:
            near = did_you_mean(name, names) or did_you_mean(top, names)
            raise UserError(f"{override}: no option {name}{near} (--help lists all)")


def _explain(error: HydraException, names: Collection[str]) -> str:
    """Return in one line what is wrong with the options, and what to write instead."""
    text = " ".join(str(error).split()).partition(" See https")[0]
    if isinstance(error, OverrideParseException):
        why = text.removeprefix(f"Error parsing override '{error.override}' ")
        return f"{error.override}: {why}; write option=value, and quote special characters: option='\"...\"'"
    if isinstance(error, MissingConfigException) and error.options:
        group, _, choice = (error.missing_cfg_file or "").rpartition("/")
        nearest = sorted(error.options, key=lambda own: -difflib.SequenceMatcher(None, choice, own).ratio())
        return f"{group}={choice}: choose one of {', '.join(nearest)}"
    if unknown := _UNKNOWN.match(text):
        name = unknown["name"]
        if name in names and "delete" in text:
            return f"~{name}: its value is null, and Hydra removes only options that have a value"
        if name in names:
            return f"{name} is a group: choose one of its configs by name (--help lists all)"
        return f"no option {name}{did_you_mean(name, names)} (--help lists all)"
    return f"{text} {first_line(error.__cause__)}" if error.__cause__ else text
