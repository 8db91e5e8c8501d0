"""Whitening (Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval")."""

import logging

from torch import Tensor

from simcse_pl.postprocessing.affine import AffinePostProcess, principal_directions
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)


class Whitening(AffinePostProcess):
    """(x - mean) V Lambda^(-1/2): zero mean and identity covariance, from Cov = V Lambda V^T (Su et al., algorithm 1).

    The covariance is that of numpy.cov, divided by n - 1, as in Su et al.'s code. Directions are in
    descending order of eigenvalue. Directions whose variance is zero up to rounding (see
    `principal_directions`) are left out, so the output may have fewer dimensions than the input.

    If n rows have n - 1 directions, whitening makes all distances between these rows equal. The log then
    has a warning.

    Args:
        dim: keep only the first dimensions; None keeps all that have variance.

    Raises:
        UserError: `dim` is below 1, or, in `fit`, all rows are equal.

    Examples:
        >>> import torch
        >>> x = torch.randn(100, 8) @ torch.randn(8, 8) + 5
        >>> Whitening(dim=4).fit(x).transform(x).T.cov().shape
        torch.Size([4, 4])
    """

    name = "whitening"

    def __init__(self, dim: int | None = None) -> None:
        if dim is not None and dim < 1:
            raise UserError(f"postprocess.dim={dim}: it must be at least 1, or null for all dimensions")
        super().__init__(dim=dim)
        self.dim = dim

    def check_width(self, width: int) -> None:
        """Check that embeddings of `width` dimensions can be mapped.

        Raises:
            UserError: `dim` exceeds the width, or it was fitted on another width.
        """
        super().check_width(width)
        if self.dim is not None and self.dim > width:
            raise UserError(f"postprocess.dim={self.dim}: the embeddings have {width} dimensions")

    def _fit_affine(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, variances, directions = principal_directions(x)
        if not len(variances):
            raise UserError(f"whitening: the {len(x)} embeddings are all the same")
        matrix = (directions * variances.rsqrt())[:, : self.dim]
        if matrix.shape[1] == len(x) - 1:
            log.warning("whitening: the %d fitted embeddings become equally far apart; fit on more embeddings", len(x))
        return mean, matrix
