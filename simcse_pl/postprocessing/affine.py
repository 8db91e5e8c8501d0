"""Affine maps, from x to (x - mean) matrix, based on the principal directions of embeddings."""

import torch
from torch import Tensor

from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.tensors import as_float64


def principal_directions(x: Tensor, center: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return the eigenvectors of the covariance of `x` [n, dim], in descending order of variance.

    The covariance is divided by n - 1. Directions whose variance may be due to rounding are left out: variances
    of at most

        max( eps_x^2 mean ||x||^2, dim eps_64 lambda_1 )

    with the machine epsilons eps_x of the dtype of `x` and eps_64 of float64, and the largest variance lambda_1.
    At most n - 1 directions are kept, or n if `center` is False.

    Args:
        x: the embeddings, at least two.
        center: subtract the mean first.

    Returns:
        In float64: the mean [dim] (0 if not centered), the variances [rank], and the directions as
        columns [dim, rank].
    """
    n, dim = x.shape
    rows = as_float64(x)
    mean = rows.mean(dim=0) if center else torch.zeros_like(rows[0])
    covariance = (rows - mean).T @ (rows - mean) / (n - 1)
    variances, directions = torch.linalg.eigh(covariance)
    of_embeddings = torch.finfo(x.dtype).eps ** 2 * rows.square().sum(dim=1).mean()
    of_eigenvalues = dim * torch.finfo(variances.dtype).eps * variances[-1]
    above_rounding = variances > torch.maximum(of_embeddings, of_eigenvalues)
    kept = above_rounding.nonzero().flatten().flip(0)[: n - 1 if center else n]
    return mean, variances[kept], directions[:, kept]


class AffinePostProcess(PostProcess):
    """A post-processing that maps x to (x - mean) matrix.

    Attributes:
        mean: [dim], float64.
        matrix: [dim, k], float64.
    """

    mean: Tensor
    matrix: Tensor

    def map(self, x: Tensor) -> Tensor:
        """Return (x - mean) matrix."""
        return (x - self.mean.to(x.device)) @ self.matrix.to(x.device)

    def tensors(self) -> dict[str, Tensor]:
        """Return `mean` and `matrix`."""
        return {"mean": self.mean, "matrix": self.matrix}

    def restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        """Set `mean` and `matrix`.

        Raises:
            ValueError: their shapes do not fit the width.
        """
        mean, matrix = tensors["mean"], tensors["matrix"]
        if mean.shape != (width,) or matrix.ndim != 2 or len(matrix) != width or not matrix.numel():
            raise ValueError(f"mean {list(mean.shape)} and matrix {list(matrix.shape)} for {width} dimensions")
        self.mean, self.matrix = mean.double(), matrix.double()
