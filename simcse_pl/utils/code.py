"""Classes and functions by their dotted names; values by annotations; and the versions of the code."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

_CLONE = Path(__file__).parents[2]
LIBRARIES = ("simcse_pl.", "torch.", "transformers.", "peft.", "pytorch_lightning.")  # other classes are the user's


def locate(name: str) -> Any:
    """Import a class or function by its dotted name, from an installed package or the current folder.

    The current folder is on Python's path only during the import: it may be a downloaded model's, and libraries try to
    import packages that are not installed.
    """
    first, *attributes = name.split(".")
    with current_folder_on_path():
        target: Any = importlib.import_module(first)
        for depth, attribute in enumerate(attributes, 1):
            if hasattr(target, "__path__") and not hasattr(target, attribute):  # a package
                target = importlib.import_module(".".join([first, *attributes[:depth]]))
            else:
                target = getattr(target, attribute)
    return target


@contextmanager
def current_folder_on_path() -> Iterator[None]:
    """Within the block, modules of the current folder can be imported; what they add to the path stays."""
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        yield
    finally:
        last = len(sys.path) - 1 - sys.path[::-1].index(folder)
        del sys.path[last]


def optional(name: str) -> Any:
    """Import a function or class of simcse_pl that few runs need, such as `lab.encoder_tables.task_tables`.

    This is the only way of the core into methods/, speed/, lab/ and tools/ for what no config names;
    docs/architecture.md lists them.
    """
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"simcse_pl.{module}"), attribute)


def expected_instead(value: Any, annotation: Any, taker: Any = None) -> str:
    """Return what a value should be; nothing if it fits an annotation, is an object, or pydantic cannot read it.

    Numbers must be finite, unless the user's class or function takes them.
    """
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError  # slow, and not for --help

    # In JSON a list can be a tuple, and a string a path.
    as_json = json.dumps(value, default=_plain)
    if '"_target_":' in as_json:
        return ""
    try:
        is_users = taker is not None and not taker.__module__.startswith(LIBRARIES)
        rules = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=is_users)
        TypeAdapter(annotation, config=rules).validate_json(as_json, strict=True)
    except (PydanticUserError, NameError):
        return ""
    except ValidationError as error:
        problems = [problem["msg"] for problem in error.errors() if problem["type"] != "needs_python_object"]
        return " or ".join(dict.fromkeys(problem.removeprefix("Input should be ") for problem in problems))
    return ""


def _plain(value: Any) -> Any:
    """Return the list of a Hydra sequence, the number of a NumPy one, and the text of anything else."""
    return [*value] if isinstance(value, Sequence) else value.item() if hasattr(value, "item") else str(value)


def versions() -> str:
    """Return the versions of the project, torch and transformers; in a clone also the commit, and if files differ."""
    project = sys.modules["simcse_pl"].__version__  # importing it here would be a circle of packages
    if (_CLONE / ".git").exists():  # an installed package may be below another repository
        command = ["git", "-C", str(_CLONE), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
        with suppress(OSError):  # there is no git
            project += f" {subprocess.run(command, capture_output=True, text=True).stdout.strip()}"
    return f"simcse_pl {project}, torch {version('torch')}, transformers {version('transformers')}"
