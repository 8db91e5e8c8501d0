"""The entry point of `train` and `evaluate`, and the checks of their configs."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_IN_WHEEL = _PACKAGE / "conf"
CONF = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent / "conf"  # beside the package in a clone
