"""Explain Hydra's errors about options in one line, with the nearest names."""

import difflib
import re
from collections.abc import Collection, Iterable

from hydra.errors import HydraException, MissingConfigException, OverrideParseException

from simcse_pl.utils.errors import UserError, did_you_mean, first_line

_UNKNOWN = re.compile(r"Could not (?:override|delete from config\.) '(?P<name>[^']+)'")


def explain(error: HydraException, names: Collection[str]) -> str:
    """Return what is wrong with the options, and what to write instead.

    Args:
        error: raised while Hydra parsed the options or composed the config.
        names: the names of all options and groups.
    """
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
        if name in names:
            return f"{name} is a group: choose one of its configs by name (--help lists all)"
        return f"no option {name}{did_you_mean(name, names)} (--help lists all)"
    return f"{text} {first_line(error.__cause__)}" if error.__cause__ else text


def check_added(overrides: Iterable[str], names: Collection[str]) -> None:
    """Check options added with + or ++. No code reads a new option at the top of the config.

    Args:
        overrides: the options, such as `+trainer.limit_val_batches=1` or `+GROUP=CHOICE`.
        names: the names of all options and groups.

    Raises:
        UserError: an option is new at the top. The message suggests the nearest name.
    """
    for override in overrides:
        name = override.lstrip("+").partition("=")[0].partition("@")[0]
        top = name.partition(".")[0]
        if "/" not in name and top != "hydra" and top not in names:
            near = did_you_mean(name, names) or did_you_mean(top, names)
            raise UserError(f"{override}: no option {name}{near} (--help lists all)")
