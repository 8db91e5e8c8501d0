"""Affine maps, from x to (x - mean) matrix, based on the principal directions of embeddings."""

import torch
from torch import Tensor

from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.tensors import as_float64


def principal_directions(x: Tensor, center: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return the eigenvectors of the covariance of `x` [n, dim], in descending order of variance.

    The covariance is that of numpy.cov, divided by n - 1. Directions are left out if their variance is due
    to rounding: of the embeddings, eps^2 E ||x||^2 with the eps of their dtype, or of the eigenvalues,
    dim * eps * the largest with float64's eps. So n rows have at most n - 1 directions.

    Args:
        x: the embeddings, at least two.
        center: subtract the mean first; without, there are at most n directions.

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
    is_real = variances > torch.maximum(of_embeddings, of_eigenvalues)
    kept = is_real.nonzero().flatten().flip(0)[: n - 1 if center else n]
    return mean, variances[kept], directions[:, kept]


class AffinePostProcess(PostProcess):
    """A post-processing that maps x to (x - mean) matrix.

    Attributes:
        mean: [dim], float64.
        matrix: [dim, k], float64.
    """

    mean: Tensor
    matrix: Tensor

    def _transform(self, x: Tensor) -> Tensor:
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
