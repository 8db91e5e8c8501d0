"""Whitening (Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval")."""

import logging

from pydantic import PositiveInt
from torch import Tensor

from simcse_pl.postprocessing.post_process import AffinePostProcess, principal_directions
from simcse_pl.utils.errors import UserError

log = logging.getLogger(__name__)


class Whitening(AffinePostProcess):
    """(x - mean) V Lambda^(-1/2): zero mean and identity covariance, from Cov = V Lambda V^T (Su et al., algorithm 1).

    The eigenvalues are in descending order. Directions without variance (see `principal_directions`) are
    left out, so the output may have fewer dimensions than the input. If n rows have n - 1 directions,
    whitening makes all distances between these rows equal; it logs a warning.

    Args:
        dim: keep only the first dimensions; None keeps all that have variance.

    Raises:
        UserError: in `fit`, if the embeddings have fewer than `dim` dimensions.

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

    def check_width(self, width: int) -> None:
        """Check the width as the base class does, and that `dim` does not exceed it."""
        super().check_width(width)
        if self.dim is not None and self.dim > width:
            raise UserError(f"postprocess.dim={self.dim}: the embeddings have {width} dimensions")

    def learn(self, x: Tensor) -> None:
        """Find the mean, and the principal directions, each divided by its standard deviation."""
        self.mean, variances, directions = principal_directions(x)
        self.matrix = (directions * variances.rsqrt())[:, : self.dim]
        if self.matrix.shape[1] == len(x) - 1:
            log.warning("whitening: the %d fitted embeddings become equally far apart; fit on more embeddings", len(x))
