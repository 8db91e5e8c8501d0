"""Removal of the top principal components (Mu and Viswanath 2018; Arora et al. 2017)."""

import torch
from pydantic import PositiveInt
from torch import Tensor

from simcse_pl.postprocessing.post_process import AffinePostProcess, principal_directions
from simcse_pl.utils.errors import UserError


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
        """Find the mean, and the projection that removes the top components."""
        self.mean, variances, directions = principal_directions(x, self.center)
        if len(variances) <= self.count:
            raise UserError(f"postprocess.count={self.count}: the embeddings vary in {len(variances)} directions only")
        top = directions[:, : self.count]
        self.matrix = torch.eye(len(top), dtype=top.dtype, device=top.device) - top @ top.T
