"""Linear post-processing: whitening, and removal of the top principal components."""

import logging

import torch
from pydantic import PositiveInt
from torch import Tensor

from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import as_float64

log = logging.getLogger(__name__)


class AffinePostProcess(PostProcess):
    """A post-processing that maps x to (x - mean) matrix.

    Attributes:
        mean: [dim], float64.
        matrix: [dim, k], float64.
    """

    is_affine = True
    mean: Tensor
    matrix: Tensor

    def map(self, x: Tensor) -> Tensor:
        return (x - self.mean.to(x.device)) @ self.matrix.to(x.device)

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "matrix": self.matrix}

    def restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        self.mean, self.matrix = tensors["mean"].double().view(width), tensors["matrix"].double().view(width, -1)


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
    rounding_of_embeddings = torch.finfo(x.dtype).eps ** 2 * rows.square().sum(dim=1).mean()
    rounding_of_eigenvalues = dim * torch.finfo(variances.dtype).eps * variances[-1]
    above_rounding = variances > torch.maximum(rounding_of_embeddings, rounding_of_eigenvalues)
    kept = above_rounding.nonzero().flatten().flip(0)[: n - 1 if center else n]
    return mean, variances[kept], directions[:, kept]


class Whitening(AffinePostProcess):
    """(x - mean) V Lambda^(-1/2): zero mean and identity covariance, from Cov = V Lambda V^T (Su et al., algorithm 1).

    The eigenvalues are in descending order. Directions without variance (see `principal_directions`) are
    left out, so the output may have fewer dimensions than the input. If n rows have n - 1 directions,
    whitening makes all distances between these rows equal, which is a warning.

    Args:
        dim: keep only the first dimensions; None keeps all that have variance.

    Raises:
        UserError: in `fit`, if no direction has variance.

    Examples:
        >>> import torch
        >>> x = torch.randn(100, 8) @ torch.randn(8, 8) + 5
        >>> Whitening(dim=4).fit(x).transform(x).T.cov().shape
        torch.Size([4, 4])
    """

    name = "whitening"

    def __init__(self, dim: PositiveInt | None = None) -> None:
        super().__init__(dim=dim)
        self.dim = dim

    def learn(self, x: Tensor) -> None:
        self.mean, variances, directions = principal_directions(x)
        if not len(variances):
            raise UserError("whitening: the embeddings differ by no more than rounding: fit on more sentences")
        self.matrix = (directions * variances.rsqrt())[:, : self.dim]
        if self.matrix.shape[1] == len(x) - 1:
            text = f"whitening: the {len(x)} fitted embeddings become equally far apart; fit on more embeddings"
            log.warning(text)
            self.warnings.append(text)


class RemoveComponents(AffinePostProcess):
    """All-but-the-top: subtract the mean, then the projections on the top principal components.

    Mu and Viswanath 2018, "All-but-the-Top", algorithm 1. They suggest one component per 100 dimensions.
    With `count=1, center=False` it is the common component removal of Arora et al. 2017, "A Simple but
    Tough-to-Beat Baseline for Sentence Embeddings" (algorithm 1, second half): x - u u^T x, where u is
    the first singular vector.

    Args:
        count: the number of components.
        center: subtract the mean before finding the components.

    Raises:
        UserError: in `fit`, if no direction with variance would be left.

    Examples:
        >>> x = torch.randn(100, 8)
        >>> RemoveComponents(count=2).fit(x).transform(x).shape
        torch.Size([100, 8])
    """

    name = "remove_components"

    def __init__(self, count: PositiveInt, center: bool = True) -> None:
        super().__init__(count=count, center=center)
        self.count = count
        self.center = center

    def learn(self, x: Tensor) -> None:
        self.mean, variances, directions = principal_directions(x, self.center)
        if len(variances) <= self.count:
            raise UserError(f"postprocess.count={self.count}: the embeddings vary in {len(variances)} directions only")
        top = directions[:, : self.count]
        self.matrix = torch.eye(len(top), dtype=top.dtype, device=top.device) - top @ top.T
