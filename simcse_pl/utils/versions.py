"""The versions of the code that a run uses."""

import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

_CLONE = Path(__file__).parents[2]


def versions() -> str:
    """Return the versions of the project, torch and transformers; in a clone also the commit, and if files differ."""
    project = sys.modules["simcse_pl"].__version__  # importing it here would be a circle of packages
    if (_CLONE / ".git").exists():  # an installed package may be below another repository
        command = ["git", "-C", str(_CLONE), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
        with suppress(OSError):  # there is no git
            project += f" {subprocess.run(command, capture_output=True, text=True).stdout.strip()}"
    return f"simcse_pl {project}, torch {version('torch')}, transformers {version('transformers')}"
