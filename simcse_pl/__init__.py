"""SimCSE: contrastive learning of sentence embeddings (Gao, Yao and Chen, EMNLP 2021)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcse_pl.inference.simcse import SimCSE

__version__ = "0.1.0"
__all__ = ["SimCSE"]

_PACKAGED = Path(__file__).parent / "conf"  # where a wheel has the configs; in a clone they lie beside the package
CONF = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[1] / "conf"


def __getattr__(name: str) -> Any:
    """`SimCSE`, imported when it is asked for: with it come torch and transformers."""
    if name == "SimCSE":
        from simcse_pl.inference.simcse import SimCSE

        return SimCSE
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
