"""Files of YAML, such as configs, that may be damaged, or a stranger's."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from simcse_pl.errors import failing_as, one_line

_DEEPEST = 50  # lists and mappings in each other
_MOST_BY_ALIASES = 10_000  # values that stand in a file once more, by their names


def read_yaml(file: Path) -> Any:
    """What a file holds, as OmegaConf's, nothing resolved; nothing where there is no such file.

    Raises:
        UserError: the file is damaged, or asks for too much (see `reading`).
    """
    if not file.is_file():
        return OmegaConf.create()
    with reading(file):
        return OmegaConf.load(file)


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Read a file in this block; it is looked through before, for what takes a reader more time and memory than it has
    bytes to ask for.

    Raises:
        UserError: it asks for such, or whatever fails in the block, with the line and the column that YAML's reader
            tells.
    """
    with failing_as(f"{file} is damaged", users_too=True):
        try:
            with file.open(encoding="utf-8") as text:
                _check(yaml.parse(text, yaml.SafeLoader))
            yield
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
            raise ValueError(f"{place}{error.problem or one_line(error)}") from error


def _check(events: Iterable[yaml.Event]) -> None:
    by_aliases, values = 0.0, 0
    sizes: dict[str, float] = {}  # of what an alias may stand for, in values
    opened: list[tuple[str, float]] = []
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            endless = any(event.anchor == anchor for anchor, _ in opened)
            by_aliases += math.inf if endless else sizes.get(event.anchor, 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = values + by_aliases - before
        elif isinstance(event, yaml.NodeEvent):
            if isinstance(event, yaml.CollectionStartEvent):
                opened.append((event.anchor, values + by_aliases))
            else:
                sizes[event.anchor] = 1
            values += 1
        if len(opened) > _DEEPEST or by_aliases > _MOST_BY_ALIASES:
            raise ValueError(f"{_DEEPEST} lists in each other, or {_MOST_BY_ALIASES} values by aliases (*name)")
