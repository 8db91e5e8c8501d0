"""The folder of the configs, and the check of their options."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
# A wheel contains the configs; in a clone they are beside the package.
_IN_WHEEL = _PACKAGE / "conf"
CONF = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent / "conf"
