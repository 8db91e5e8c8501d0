"""BERT-flow (Li et al. 2020, "On the Sentence Embeddings from Pre-trained Language Models")."""

import itertools
import math
from functools import partial

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.distributions import AffineTransform
from zuko.distributions import DiagNormal
from zuko.flows.coupling import RealNVP
from zuko.lazy import Flow as ZukoFlow
from zuko.lazy import UnconditionalDistribution, UnconditionalTransform
from zuko.transforms import MonotonicAffineTransform

from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import as_float64
from simcse_pl.utils.terminal import tracked

_SMALLEST_SCALE = 0.3  # of a coupling; the largest is 1 / 0.3, so that float32 can invert the map
_ROWS_AT_A_TIME = 4096


class Flow(PostProcess):
    """An invertible map of embeddings to a standard Gaussian, fitted by maximum likelihood (Li et al., section 3).

    The dimensions are standardized; constant ones are only centered. Affine couplings follow (RealNVP, Dinh
    et al. 2017; those of Li et al. are additive). They map in turn the even dimensions given the odd ones
    and the reverse, with scales between 0.3 and 3.3. They start as the identity, so the fit starts from the
    Gaussian with independent dimensions.

    A higher likelihood is not a better similarity: after some epochs, Spearman's correlation on STS falls
    while the likelihood still rises, on held-out embeddings too. The fit is therefore short.

    Args:
        transforms: the number of couplings; two of them map every dimension once.
        hidden: the hidden units of the network that computes a coupling's scales and shifts.
        epochs: passes over the embeddings.
        batch_size: embeddings per step.
        lr: the learning rate of Adam.
        seed: seeds the initial weights and the order of embeddings.

    Raises:
        UserError: in `fit`, if the likelihood diverges.

    Examples:
        >>> x = torch.randn(500, 8).exp()
        >>> Flow(epochs=2).fit(x).transform(x).shape
        torch.Size([500, 8])
    """

    name = "flow"

    def __init__(
        self,
        transforms: PositiveInt = 4,
        hidden: PositiveInt = 256,
        epochs: PositiveInt = 4,
        batch_size: PositiveInt = 64,
        lr: PositiveFloat = 3e-4,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(transforms=transforms, hidden=hidden, epochs=epochs, batch_size=batch_size, lr=lr, seed=seed)
        self.transforms, self.hidden, self.epochs, self.batch_size = transforms, hidden, epochs, batch_size
        self.lr, self.seed = lr, seed

    def learn(self, x: Tensor) -> None:
        """Train the couplings by maximum likelihood."""
        x = x.float()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            flow = self._build(x.shape[1], *_mean_and_scale(x)).to(x.device)
        self._maximize_likelihood(flow, x)
        self._flow = flow.cpu().double()

    def _build(self, width: int, mean: Tensor, scale: Tensor) -> ZukoFlow:
        """Return a flow from embeddings to the Gaussian: (x - mean) / scale, then couplings that are the identity."""
        standardize = UnconditionalTransform(AffineTransform, mean, scale, buffer=True).inv
        affine = partial(MonotonicAffineTransform, slope=_SMALLEST_SCALE)
        flow = RealNVP(width, transforms=self.transforms, univariate=affine, hidden_features=(self.hidden,))
        couplings = flow.transform.transforms
        for parameter in itertools.chain(*(coupling.hyper[-1].parameters() for coupling in couplings)):
            nn.init.zeros_(parameter)
        gaussian = UnconditionalDistribution(DiagNormal, torch.zeros(width), torch.ones(width), buffer=True)
        return ZukoFlow([standardize, *couplings], gaussian)

    def _maximize_likelihood(self, flow: ZukoFlow, x: Tensor) -> None:
        order = torch.Generator().manual_seed(self.seed)
        optimizer = torch.optim.Adam(flow.parameters(), lr=self.lr)
        with torch.enable_grad():
            for _ in tracked(range(self.epochs), "fitting the flow"):
                for rows in torch.randperm(len(x), generator=order).split(self.batch_size):
                    optimizer.zero_grad()
                    (-flow().log_prob(x[rows.to(x.device)]).mean()).backward()
                    optimizer.step()
                if not math.isfinite(mean_log_likelihood(flow, x)):
                    raise UserError(f"postprocess.lr={self.lr}: the likelihood diverged; choose a smaller one")

    @torch.no_grad()
    def map(self, x: Tensor) -> Tensor:
        """Return the points of the Gaussian."""
        transform = self._flow.to(x.device)().transform
        return torch.cat([transform(rows) for rows in x.split(_ROWS_AT_A_TIME)])

    def tensors(self) -> dict[str, Tensor]:
        """Return the state dict of the flow."""
        return dict(self._flow.state_dict())

    def restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        """Load the state dict of the flow, if it has the names and the shapes of the options."""
        # Refuse options that need a far larger network than the file has, before it is allocated.
        if self.transforms * self.hidden * width > sum(tensor.numel() for tensor in tensors.values()):
            raise ValueError(f"too few numbers for {self.transforms} transforms of {self.hidden} units")
        flow = self._build(width, torch.zeros(width), torch.ones(width)).double()
        flow.load_state_dict(tensors)
        self._flow = flow


def _mean_and_scale(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of each dimension; 1 if it is constant up to rounding."""
    mean, scale = as_float64(x).mean(dim=0), as_float64(x).std(dim=0)
    rounding = torch.finfo(x.dtype).eps * mean.abs()
    return mean.to(x), torch.where(scale > rounding, scale, 1.0).to(x)


@torch.no_grad()
def mean_log_likelihood(flow: ZukoFlow, x: Tensor) -> float:
    """Return the mean log-likelihood of embeddings [n, dim] in nats."""
    return sum(float(flow().log_prob(rows).sum()) for rows in x.split(_ROWS_AT_A_TIME)) / len(x)
