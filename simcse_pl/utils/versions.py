"""The versions of the code that a run uses."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

_CLONE = Path(__file__).parents[2]


def versions() -> str:
    """Return the versions of the project, with the commit if it is a clone, and of torch and transformers."""
    own = sys.modules["simcse_pl"].__version__  # importing it here would be a circle of packages
    return f"simcse_pl {own}{_commit()}, torch {version('torch')}, transformers {version('transformers')}"


def _commit() -> str:
    """Return the commit of the clone, marked if files have changed since; empty without a clone or git."""
    if not (_CLONE / ".git").exists():  # the package may be installed below another repository
        return ""
    command = ["git", "-C", str(_CLONE), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    try:
        return f" ({subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()})"
    except (OSError, subprocess.CalledProcessError):
        return ""
