"""SimCSE: contrastive learning of sentence embeddings (Gao, Yao and Chen, EMNLP 2021)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcse_pl.cli import evaluate as evaluate
    from simcse_pl.cli import train as train
    from simcse_pl.datamodule import SentenceDataModule as SentenceDataModule
    from simcse_pl.evaluation.evaluators import ScoredPairs as ScoredPairs
    from simcse_pl.losses.contrastive import ContrastiveLoss as ContrastiveLoss
    from simcse_pl.losses.contrastive import contrastive_loss as contrastive_loss
    from simcse_pl.losses.loss import EmbeddedBatch as EmbeddedBatch
    from simcse_pl.losses.loss import Loss as Loss
    from simcse_pl.losses.loss import Needs as Needs
    from simcse_pl.models.encoder import SentenceEncoder as SentenceEncoder
    from simcse_pl.module import SimCSEModule as SimCSEModule
    from simcse_pl.tools.simcse import SimCSE as SimCSE
    from simcse_pl.trainer import make_trainer as make_trainer
    from simcse_pl.utils.types import Role as Role

__version__ = "0.6.0"
_MODULES = {
    "ContrastiveLoss": "losses.contrastive",
    "EmbeddedBatch": "losses.loss",
    "Loss": "losses.loss",
    "Needs": "losses.loss",
    "Role": "utils.types",
    "ScoredPairs": "evaluation.evaluators",
    "SentenceDataModule": "datamodule",
    "SentenceEncoder": "models.encoder",
    "SimCSE": "tools.simcse",
    "SimCSEModule": "module",
    "contrastive_loss": "losses.contrastive",
    "evaluate": "cli",
    "make_trainer": "trainer",
    "train": "cli",
}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    """Import a name on first access, because importing torch and transformers is slow."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
