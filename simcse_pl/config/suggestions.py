"""What Hydra says of options, in one line that names the nearest ones."""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence

from hydra.errors import HydraException, InstantiationException, MissingConfigException, OverrideParseException

from simcse_pl.utils.errors import UserError, did_you_mean, first_line

_UNKNOWN = re.compile(r"Could not (?:override|delete from config\.) '(?P<name>[^']+)'")
_SWEEP = re.compile(r"Ambiguous value for argument '(?P<option>[^']+)'")
_THERE = re.compile(r"Could not append to config\. An item is already at '(?P<name>[^']+)'")


def explained(error: HydraException, names: Collection[str]) -> str:
    """What is wrong with the options, and what to write instead.

    Args:
        error: from reading the options, or from composing the config.
        names: of all options and groups that there are.
    """
    text = " ".join(str(error).split())
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override, text)
    if isinstance(error, MissingConfigException):
        return _missing(error, text)
    if (unknown := _UNKNOWN.match(text)) and unknown["name"] in names:
        return f"{unknown['name']} is a group: choose by name what stands in it (--help lists all)"
    if unknown:
        return f"no option {unknown['name']}{did_you_mean(unknown['name'], names)} (--help lists all)"
    if sweep := _SWEEP.match(text):
        return f"{sweep['option']}: add -m for a job of each value; a list is written in brackets, text in quotes"
    if there := _THERE.match(text):
        return f"+{there['name']}: there is such an option already; leave out the +"
    return f"{text} {first_line(error.__cause__)}" if error.__cause__ else text


def check_added(overrides: Iterable[str], names: Collection[str]) -> None:
    """Check options that are added with + or ++: at the config's top nothing reads a new one.

    Args:
        overrides: as they are on the command line. `+trainer.limit_val_batches=1`, under a part that exists, and
            `+GROUP=CHOICE` are allowed.
        names: of all options and groups that exist.

    Raises:
        UserError: an option at the top that does not exist, with the nearest one.
    """
    for override in overrides:
        name = override.lstrip("+").partition("=")[0].partition("@")[0]
        top = name.partition(".")[0]
        if "/" not in name and top != "hydra" and top not in names:
            near = did_you_mean(name, names) or did_you_mean(top, names)
            raise UserError(f"{override}: no option {name}{near} (--help lists all)")


def not_a_flag(flag: str, names: Collection[str]) -> str:
    """Return what is wrong with an option that is written with dashes.

    Args:
        flag: such as `--batch_size=32`.
        names: of all options and groups that exist.
    """
    name = flag.partition("=")[0]
    near = did_you_mean(name.lstrip("-").replace("-", "_"), names)
    return f"no option {name}: write options as name=value, without dashes{near}"


def cannot_build(error: InstantiationException) -> str:
    """Which part of the config could not be built, and why."""
    return f"{place_of(error)}: {first_line(error.__cause__ or error)}"


def place_of(error: InstantiationException) -> str:
    """Return the place of that part in the config."""
    return str(error).rpartition("full_key: ")[2]


def _unreadable(override: str, text: str) -> str:
    if "=" not in override:
        return f"{override}: write it as option=value"
    name = override.partition("=")[0]
    return f"{name}: its value cannot be read ({text.partition(' See https')[0]}); put it in quotes: {name}='\"...\"'"


def _missing(error: MissingConfigException, text: str) -> str:
    group, _, choice = (error.missing_cfg_file or "").rpartition("/")
    if not error.options:
        return text
    return f"{group}={choice}: choose one of {', '.join(_nearest_first(choice, error.options))}"


def _nearest_first(choice: str, options: Sequence[str]) -> list[str]:
    return sorted(options, key=lambda own: -difflib.SequenceMatcher(None, choice, own).ratio())
