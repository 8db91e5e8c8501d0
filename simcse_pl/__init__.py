"""SimCSE: contrastive learning of sentence embeddings (Gao, Yao and Chen, EMNLP 2021)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcse_pl.cli.entry_point import evaluate, train
    from simcse_pl.data.datamodule import SentenceDataModule
    from simcse_pl.inference.simcse import SimCSE
    from simcse_pl.losses.contrastive import ContrastiveLoss
    from simcse_pl.losses.loss import Loss
    from simcse_pl.models.encoder import SentenceEncoder
    from simcse_pl.training.module import SimCSEModule

__version__ = "0.2.0"
__all__ = [
    "ContrastiveLoss",
    "Loss",
    "SentenceDataModule",
    "SentenceEncoder",
    "SimCSE",
    "SimCSEModule",
    "evaluate",
    "train",
]

_MODULES = {
    "ContrastiveLoss": "losses.contrastive",
    "Loss": "losses.loss",
    "SentenceDataModule": "data.datamodule",
    "SentenceEncoder": "models.encoder",
    "SimCSE": "inference.simcse",
    "SimCSEModule": "training.module",
    "evaluate": "cli.entry_point",
    "train": "cli.entry_point",
}


def __getattr__(name: str) -> Any:
    """Import a name on first access, because importing torch and transformers is slow."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
