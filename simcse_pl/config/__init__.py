"""The entry point of `train` and `evaluate`, and the checks of their configs."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_PACKAGED = _PACKAGE / "conf"  # where a wheel has the configs; in a clone they lie beside the package
CONF = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent / "conf"
