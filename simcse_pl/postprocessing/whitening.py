"""Whitening (Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval")."""

import logging

from torch import Tensor

from simcse_pl.postprocessing.affine import AffinePostProcess, principal_directions
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)


class Whitening(AffinePostProcess):
    """(x - mean) V Lambda^(-1/2): zero mean and identity covariance, from Cov = V Lambda V^T (Su et al., algorithm 1).

    The covariance is numpy.cov's, over n - 1, as in Su et al.'s code. Directions are in falling order of eigenvalue.
    Those whose variance is zero up to rounding (`principal_directions` says when) are left out, never scaled up: then
    the output has fewer dimensions, and its covariance is the identity still.

    With n - 1 directions from n rows, whitening puts all of these rows equally far from each other, whatever they
    mean; the log has a warning then.

    Args:
        dim: keep the first dimensions only, at most as many as have variance; None keeps all that have.

    Raises:
        UserError: `dim` below 1; in fitting, rows that are all the same.

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
        """Refuse embeddings with fewer dimensions than are to be kept.

        Raises:
            UserError: such a width, or another than it was fitted on.
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
            log.warning("whitening: the %d embeddings it is fitted on come out equally far apart; fit on more", len(x))
        return mean, matrix
