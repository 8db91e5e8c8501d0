"""Small folders of sentence-transformers, in the forms of published models."""

from collections.abc import Callable
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from torch import nn


def transformer(folder: Path) -> modules.Transformer:
    """Return the library's module of a transformer, with at most 20 tokens."""
    return modules.Transformer(str(folder), max_seq_length=20)


def linear(*dims: int, activation: nn.Module | None = None, bias: bool = True) -> modules.Dense:
    """Return a module Dense of the library."""
    return modules.Dense(*dims, bias=bias, activation_function=activation or nn.Identity())


FOLDERS = {  # an architecture, the module before the pooling, the pooling, and what follows; our pooling and head
    "e5": ("bert", None, "mean", [modules.Normalize()], "mean", "none"),
    "EmbeddingGemma": (
        *("gemma3_text", None, "mean", [linear(32, 64, bias=False), linear(64, 32, bias=False), modules.Normalize()]),
        *("mean", "linear_64_without_bias+linear_32_without_bias"),
    ),
    "Stella": ("bert", None, "weightedmean", [linear(32, 48)], "weighted_mean", "linear_48"),
    "LaBSE": ("distilbert", None, "max", [modules.Dense(32, 32), modules.Normalize()], "max", "mlp"),
    "GELU": (
        *("modernbert", None, ["cls", "mean"], [linear(64, 24, activation=nn.GELU()), linear(24, 24)]),
        *("cls+mean", "linear_24_gelu+linear"),
    ),
    "LayerNorm": (
        *("bert", None, "mean", [linear(32, 16, activation=nn.SiLU()), modules.LayerNorm(16), linear(16, 8)]),
        *("mean", "linear_16_silu+layer_norm+linear_8"),
    ),
    "WeightedLayerPooling": ("bert", modules.WeightedLayerPooling(32, 3, 1), "mean", [], "weighted_layers_1", "none"),
    "sentence-t5": (
        *("t5", None, "mean", [linear(32, 48, bias=False), modules.Normalize()]),
        *("mean", "linear_48_without_bias"),
    ),
    "dot product": ("bert", None, "cls", [], "cls", "none"),
}


def save_folder(name: str, make_model: Callable[..., Path], folder: Path) -> SentenceTransformer:
    """Save one of FOLDERS, whose transformer `make_model(architecture, **settings)` saves, and return its model."""
    architecture, before, pooling, after, _, _ = FOLDERS[name]
    settings = {"use_bidirectional_attention": True} if architecture == "gemma3_text" else {}
    first = transformer(make_model(architecture, **settings))
    first.model.config.output_hidden_states = before is not None
    with torch.no_grad():
        for module in filter(None, [before, *after]):
            for weight in module.parameters():
                weight.add_(torch.randn_like(weight) * 0.1)
    parts = [first, *filter(None, [before]), modules.Pooling(32, pooling), *after]
    similarity = "dot" if name == "dot product" else "cosine"
    model = SentenceTransformer(modules=parts, similarity_fn_name=similarity, device="cpu")
    model.save(str(folder))
    return model
