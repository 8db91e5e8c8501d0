"""SimCSE: contrastive learning of sentence embeddings (Gao, Yao and Chen, EMNLP 2021)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcse_pl.cli.entry_point import evaluate, train
    from simcse_pl.inference.simcse import SimCSE

__version__ = "0.2.0"
__all__ = ["SimCSE", "evaluate", "train"]


def __getattr__(name: str) -> Any:
    """Import a name on first access, because importing torch and transformers is slow."""
    if name == "SimCSE":
        from simcse_pl.inference.simcse import SimCSE

        return SimCSE
    if name in ("evaluate", "train"):
        from simcse_pl.cli import entry_point

        return getattr(entry_point, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
