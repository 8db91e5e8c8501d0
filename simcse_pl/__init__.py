"""SimCSE: contrastive learning of sentence embeddings (Gao, Yao and Chen, EMNLP 2021)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcse_pl.cli.entry_point import evaluate, train
    from simcse_pl.data.datamodule import SentenceDataModule
    from simcse_pl.evaluation.evaluators import ScoredPairs
    from simcse_pl.inference.simcse import SimCSE
    from simcse_pl.losses.contrastive import ContrastiveLoss, contrastive_loss
    from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs
    from simcse_pl.models.encoder import SentenceEncoder
    from simcse_pl.models.roles import Role
    from simcse_pl.training.module import SimCSEModule
    from simcse_pl.training.trainer import make_trainer

__version__ = "0.2.0"
__all__ = [
    "ContrastiveLoss",
    "EmbeddedBatch",
    "Loss",
    "Needs",
    "Role",
    "ScoredPairs",
    "SentenceDataModule",
    "SentenceEncoder",
    "SimCSE",
    "SimCSEModule",
    "contrastive_loss",
    "evaluate",
    "make_trainer",
    "train",
]

_MODULES = {
    "ContrastiveLoss": "losses.contrastive",
    "EmbeddedBatch": "losses.loss",
    "Loss": "losses.loss",
    "Needs": "losses.loss",
    "Role": "models.roles",
    "ScoredPairs": "evaluation.evaluators",
    "SentenceDataModule": "data.datamodule",
    "SentenceEncoder": "models.encoder",
    "SimCSE": "inference.simcse",
    "SimCSEModule": "training.module",
    "contrastive_loss": "losses.contrastive",
    "evaluate": "cli.entry_point",
    "make_trainer": "training.trainer",
    "train": "cli.entry_point",
}


def __getattr__(name: str) -> Any:
    """Import a name on first access, because importing torch and transformers is slow."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
