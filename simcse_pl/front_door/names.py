"""What Hydra says of options, in one line that names the nearest ones."""

import difflib
import re
from collections.abc import Collection, Sequence

from hydra.errors import HydraException, MissingConfigException, OverrideParseException

from simcse_pl.errors import one_line

_UNKNOWN = re.compile(r"Could not (?:override|delete from config\.) '(?P<name>[^']+)'")
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
    if unknown := _UNKNOWN.match(text):
        return f"no option {unknown['name']}{did_you_mean(unknown['name'], names)} (--help lists all)"
    if there := _THERE.match(text):
        return f"+{there['name']}: there is such an option already; leave out the +"
    return f"{text} {one_line(error.__cause__)}" if error.__cause__ else text


def did_you_mean(name: str, names: Collection[str]) -> str:
    """The nearest names, to be added to a message; nothing where none is near."""
    last = name.rpartition(".")[2]
    same = [own for own in names if own.rpartition(".")[2] == last]
    near = same or difflib.get_close_matches(name, names, n=2, cutoff=0.7)
    near = near or [own for own in names if difflib.get_close_matches(last, [own.rpartition(".")[2]], cutoff=0.8)]
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""


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
