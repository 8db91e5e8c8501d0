"""Projection heads: layers between the pooled vector and the embedding.

The name of a head has its layers in order: `linear_64_gelu+linear_without_bias+layer_norm` is a linear layer to 64
dimensions with GELU, one that keeps the width, and a LayerNorm. `mlp`, the head of the paper, is `linear_tanh`.
sentence-transformers has such layers as modules Dense and LayerNorm.
"""

import re

from torch import nn

from simcse_pl.utils.code import optional
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Backbone

HEADS = ("none", "mlp", "mlp_train_only", "batch_norm_train_only", "linear_train_only", "transform")
ACTIVATIONS = {"tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU, "sigmoid": nn.Sigmoid}
LAYER_NORM = "layer_norm"
_TRAIN_ONLY = "_train_only"
_LINEAR = re.compile(rf"linear(?:_([1-9][0-9]{{0,4}}))?(?:_({'|'.join(ACTIVATIONS)}))?(_without_bias)?")


def is_kept(head: str) -> bool:
    """Return whether a head is applied at test time."""
    return not head.endswith(_TRAIN_ONLY)


def layers_of(head: str, dim: int, eps: float = 1e-5) -> nn.Sequential:
    """Return the layers of a head for vectors [..., dim]: LayerNorms, and pairs of nn.Linear and an activation.

    `eps` is that of LayerNorms. Raise UserError if a layer has an unknown name.
    """
    short = {"mlp": "linear_tanh", "transform": f"linear_gelu+{LAYER_NORM}"}
    named, layers = head.removesuffix(_TRAIN_ONLY), nn.Sequential()
    for name in short.get(named, named).split("+"):
        if linear := _LINEAR.fullmatch(name):
            width, activation, without_bias = linear.groups()
            layers.append(nn.Linear(dim, int(width or dim), bias=not without_bias))
            layers.append(ACTIVATIONS.get(activation, nn.Identity)())
            dim = int(width or dim)
        elif name == LAYER_NORM:
            layers.append(nn.LayerNorm(dim, eps))
        else:
            hint = f"{', '.join(HEADS)}, or layers such as linear_64_gelu+linear_without_bias+layer_norm"
            raise UserError(f"head={head}: choose one of {hint}")
    return layers


def projection_head(backbone: Backbone, head: str, dim: int) -> nn.Sequential:
    """Return a head for vectors [..., dim] with weights from the distribution that the backbone's are drawn from."""
    config = backbone.config
    std = getattr(config, "initializer_range", 0.02)
    if head == "batch_norm_train_only":
        made: nn.Sequential = optional("methods.batch_norm_head.BatchNormHead")(dim, std)
        return made
    eps = getattr(config, "layer_norm_eps", getattr(config, "norm_eps", 1e-12))  # norm_eps: ModernBERT
    layers = layers_of(head, dim, eps) if head == "transform" else layers_of(head, dim)
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=std)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return layers
