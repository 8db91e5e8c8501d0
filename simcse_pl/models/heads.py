"""The projection heads of SentenceEncoder."""

import logging
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from simcse_pl.models.backbone import load_masked_language_model
from simcse_pl.utils.distributed import BatchSplit, all_gather_with_grad, split_batch
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Backbone

log = logging.getLogger(__name__)

Head = Literal["none", "mlp", "mlp_train_only", "batch_norm_train_only", "linear_train_only", "transform"]
HEADS = get_args(Head)


class BatchNormHead(nn.Sequential):
    """The head of DiffCSE and InfoCSE: two linear layers without bias, each followed by batch normalization.

    For vectors x of all rows and views, of all devices, it computes

        BN( W_2 relu(BN(W_1 x)) ),    W_1 [2 dim, dim],  W_2 [dim, 2 dim]

    The first normalization has a scale and a shift, the second has none. Both take their mean and variance from the
    present batch and keep no running values, because the head is applied in training only.

    SyncBatchNorm of torch does the same on GPUs only, so this head gathers its input.

    Args:
        dim: the number of dimensions of the vectors.
        std: the standard deviation of the new weights.
    """

    def __init__(self, dim: int, std: float) -> None:
        super().__init__(
            nn.Linear(dim, 2 * dim, bias=False),
            nn.BatchNorm1d(2 * dim, track_running_stats=False),
            nn.ReLU(),
            nn.Linear(2 * dim, dim, bias=False),
            nn.BatchNorm1d(dim, affine=False, track_running_stats=False),
        )
        for layer in self:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=std)

    def forward(self, vectors: Tensor, split: BatchSplit | None = None) -> Tensor:
        """Return the projection of this device's vectors [n, ..., dim]; `split` is that of all_gather_with_grad."""
        split = split or split_batch(len(vectors), vectors.device)
        (gathered,) = all_gather_with_grad(vectors.to(next(self.parameters()).dtype), split=split)
        with torch.autocast(vectors.device.type, enabled=False):
            projected: Tensor = super().forward(gathered.flatten(0, -2)).view_as(gathered)
        return projected[split.label_offset :][: len(vectors)]


def projection_head(backbone: Backbone, head: str, dim: int) -> nn.Sequential:
    """Return a head for vectors [..., dim] with weights from the distribution that the backbone's are drawn from."""
    if head not in HEADS[1:]:
        raise UserError(f"head={head}: choose one of {', '.join(HEADS)}")
    std = getattr(backbone.config, "initializer_range", 0.02)
    if head == "batch_norm_train_only":
        return BatchNormHead(dim, std)
    linear = nn.Linear(dim, dim)
    nn.init.normal_(linear.weight, std=std)
    nn.init.zeros_(linear.bias)
    if head == "linear_train_only":
        return nn.Sequential(linear)
    if head == "transform":
        config = backbone.config
        eps = getattr(config, "layer_norm_eps", getattr(config, "norm_eps", 1e-12))  # norm_eps: ModernBERT
        return nn.Sequential(linear, nn.GELU(), nn.LayerNorm(dim, eps=eps))
    return nn.Sequential(linear, nn.Tanh())


def pretrained_transform(name: str) -> dict[str, Tensor]:
    """Return a state dict for the head `transform`: the weights before the decoder of a masked language model.

    It is empty, with a warning, if the checkpoint has no such weights. `name` is one for `resolve`.
    """
    try:
        model = load_masked_language_model(name)
        parts = [part for key, part in model.named_modules() if not key.startswith(model.base_model_prefix)]
        linear = next(part for part in parts if isinstance(part, nn.Linear) and part.in_features == part.out_features)
        norm = next(part for part in parts if isinstance(part, nn.LayerNorm))
    except (UserError, StopIteration) as error:
        reason = str(error) or f"the head of {type(model).__name__} has another form"
        log.warning("head=transform: %s; its weights are drawn at random", reason)
        return {}
    weights: dict[str, Tensor] = {}
    for i, part in ((0, linear), (2, norm)):
        bias = torch.zeros(len(part.weight)) if part.bias is None else part.bias  # ModernBERT has none
        weights |= {f"{i}.weight": part.weight.detach(), f"{i}.bias": bias.detach()}
    return weights
