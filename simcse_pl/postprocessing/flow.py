"""BERT-flow (Li et al. 2020, "On the Sentence Embeddings from Pre-trained Language Models")."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributions import AffineTransform
from zuko.distributions import DiagNormal, NormalizingFlow
from zuko.flows.coupling import GeneralCouplingTransform
from zuko.lazy import Flow as ZukoFlow
from zuko.lazy import UnconditionalDistribution, UnconditionalTransform
from zuko.transforms import MonotonicAffineTransform

from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.progress import progress_bar
from simcse_pl.utils.tensors import as_float64
from simcse_pl.utils.validation import check_positive, check_seed

_SMALLEST_SCALE = 0.3  # of a coupling; the largest is its inverse, so that float32 inverts the map
_ROWS_AT_A_TIME = 4096


class Flow(PostProcess):
    """An invertible map of embeddings to a standard Gaussian, fitted by maximum likelihood (Li et al., section 3).

    The dimensions are standardized, and affine couplings follow (RealNVP, Dinh et al. 2017; Li et al. have additive
    ones), in turn of the even dimensions given the odd ones and the reverse. They start as the identity, so that the
    fit starts from the Gaussian with independent dimensions. Their scales are kept between 0.3 and 3.3. A dimension
    that does not vary is not scaled.

    A higher likelihood is not a better similarity: from some epoch on, Spearman's correlation on STS falls while the
    likelihood still rises, on embeddings held out as well. So the fit is short, and does not stop by likelihood.

    Args:
        transforms: the number of couplings; two of them map every dimension once.
        hidden: the units of the hidden layer that computes a coupling's scales and shifts.
        epochs: passes over the embeddings.
        batch_size: embeddings a step.
        lr: Adam's learning rate.
        seed: of the initial weights and the order of embeddings.
        progress: show a progress bar on standard error in fitting.

    Attributes:
        history: the mean log-likelihood of the embeddings fitted on, in nats, before the first epoch and after each.

    Raises:
        UserError: an option out of range; in fitting, embeddings of one dimension, or a likelihood that is not
            finite any more.

    Examples:
        >>> x = torch.randn(500, 8).exp()
        >>> flow = Flow(epochs=2).fit(x)
        >>> torch.allclose(flow.inverse(flow.transform(x)), x, atol=1e-4)
        True
    """

    name = "flow"

    def __init__(
        self,
        transforms: int = 4,
        hidden: int = 256,
        epochs: int = 4,
        batch_size: int = 64,
        lr: float = 3e-4,
        seed: int = 0,
        progress: bool = False,
    ) -> None:
        counts = {"transforms": transforms, "hidden": hidden, "epochs": epochs, "batch_size": batch_size}
        for option, value in counts.items():
            if value < 1:
                raise UserError(f"postprocess.{option}={value}: it must be at least 1")
        check_positive("postprocess.lr", lr)
        check_seed(seed)
        super().__init__(**counts, lr=lr, seed=seed)
        self.transforms = transforms
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.seed = seed
        self.progress = progress
        self.history: list[float] = []

    def inverse(self, z: Tensor) -> Tensor:
        """The embeddings [n, dim] that `transform` maps to `z` [n, dim].

        Raises:
            UserError: as `transform`.
        """
        self._check_fitted(z)
        rows = as_float64(z)
        transform = self._density(rows.device).transform
        with torch.no_grad():
            return torch.cat([transform.inv(part) for part in rows.split(_ROWS_AT_A_TIME)]).to(z)

    def log_likelihood(self, x: Tensor) -> Tensor:
        """log p(f(x)) + log |det df/dx|, in nats, of each of the embeddings `x` [n, dim]: [n].

        Raises:
            UserError: as `transform`.
        """
        self._check_fitted(x)
        if not len(x):
            return x.new_empty(0)
        rows = as_float64(x)
        density = self._density(rows.device)
        with torch.no_grad():
            return torch.cat([density.log_prob(part) for part in rows.split(_ROWS_AT_A_TIME)]).to(x)

    def _fit(self, x: Tensor) -> None:
        if x.shape[1] < 2:
            raise UserError("flow: a coupling needs two dimensions, and the embeddings have one")
        x = x.float()
        self.history = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            flow = self._build(x.shape[1], *_mean_and_scale(x)).to(x.device)
        self._maximize_likelihood(flow, x)
        self._flow = flow.cpu().double()

    def _build(self, width: int, mean: Tensor, scale: Tensor) -> ZukoFlow:
        """A flow from embeddings to the Gaussian: x to (x - mean) / scale, and couplings that do nothing yet."""
        standardize = UnconditionalTransform(AffineTransform, mean, scale, buffer=True).inv
        couplings = []
        for i in range(self.transforms):
            coupling = GeneralCouplingTransform(
                width,
                mask=torch.arange(width) % 2 == i % 2,
                univariate=partial(MonotonicAffineTransform, slope=_SMALLEST_SCALE),
                hidden_features=(self.hidden,),
            )
            for parameter in coupling.hyper[-1].parameters():
                nn.init.zeros_(parameter)
            couplings.append(coupling)
        gaussian = UnconditionalDistribution(DiagNormal, torch.zeros(width), torch.ones(width), buffer=True)
        return ZukoFlow([standardize, *couplings], gaussian)

    def _maximize_likelihood(self, flow: ZukoFlow, x: Tensor) -> None:
        order = torch.Generator().manual_seed(self.seed)
        optimizer = torch.optim.Adam(flow.parameters(), lr=self.lr)
        self.history = [_mean_log_likelihood(flow, x)]
        with torch.enable_grad(), progress_bar(shown=self.progress) as bar:
            task = bar.add_task("fitting the flow", total=self.epochs * math.ceil(len(x) / self.batch_size))
            for _ in range(self.epochs):
                for rows in torch.randperm(len(x), generator=order).split(self.batch_size):
                    optimizer.zero_grad()
                    (-flow().log_prob(x[rows.to(x.device)]).mean()).backward()
                    optimizer.step()
                    bar.advance(task)
                self.history.append(_mean_log_likelihood(flow, x))
                if not math.isfinite(self.history[-1]):
                    raise UserError(f"postprocess.lr={self.lr}: the flow's likelihood diverged; take a smaller one")

    def _density(self, device: torch.device) -> NormalizingFlow:
        return self._flow.to(device)()

    def _transform(self, x: Tensor) -> Tensor:
        transform = self._density(x.device).transform
        with torch.no_grad():
            return torch.cat([transform(rows) for rows in x.split(_ROWS_AT_A_TIME)])

    def _tensors(self) -> dict[str, Tensor]:
        return dict(self._flow.state_dict())

    def _restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        if self.transforms * self.hidden * width > sum(tensor.numel() for tensor in tensors.values()):
            raise ValueError(f"too few numbers for {self.transforms} transforms of {self.hidden} units")
        flow = self._build(width, torch.zeros(width), torch.ones(width)).double()
        flow.load_state_dict(tensors)
        self._flow = flow


def _mean_and_scale(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the standard deviation of each dimension, 1 for one that is constant, up to rounding."""
    mean, scale = as_float64(x).mean(dim=0), as_float64(x).std(dim=0)
    rounding = torch.finfo(x.dtype).eps * mean.abs()
    return mean.to(x), torch.where(scale > rounding, scale, 1.0).to(x)


@torch.no_grad()
def _mean_log_likelihood(flow: ZukoFlow, x: Tensor) -> float:
    return sum(float(flow().log_prob(rows).sum()) for rows in x.split(_ROWS_AT_A_TIME)) / len(x)
