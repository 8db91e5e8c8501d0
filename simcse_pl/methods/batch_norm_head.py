"""The projection head of DiffCSE and InfoCSE: `head=batch_norm_train_only`."""

import torch
from torch import Tensor, nn

from simcse_pl.utils.distributed import BatchSplit, all_gather_with_grad, split_batch


class BatchNormHead(nn.Sequential):
    """Two linear layers without bias, each followed by batch normalization.

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
        if sum(split.rows) * vectors[0, ..., 0].numel() == 1:  # less its mean, one vector is 0; torch raises an error
            return 0 * vectors
        (gathered,) = all_gather_with_grad(vectors.to(next(self.parameters()).dtype), split=split)
        with torch.autocast(vectors.device.type, enabled=False):
            projected: Tensor = super().forward(gathered.flatten(0, -2)).view_as(gathered)
        return projected[split.label_offset :][: len(vectors)]
