"""BERT-flow (Li et al. 2020, "On the Sentence Embeddings from Pre-trained Language Models")."""

import math
from collections.abc import Iterable

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import as_float64
from simcse_pl.utils.terminal import tracked

_ROWS_AT_A_TIME = 4096
_LARGEST_NORM = 1.0  # of a gradient
_LOG_SCALE_FACTOR = 3.0  # a parameter s is the scale exp(3 s), so that s learns faster


class Flow(PostProcess):
    """An invertible map of embeddings to a standard Gaussian, fitted by maximum likelihood (Li et al., section 3).

    The map and its loss (see `Glow`) and the fit are those of the released code: gradients are clipped to norm 1, and
    the optimizer is Adam without bias correction, with weight decay 0.01 and a constant learning rate.

    The released fit starts from random scales, so it suits embeddings whose dimensions have means near 0 and standard
    deviations near 1. For others, set `standardize`: the released code has this start, but its script does not run it.

    A higher likelihood is not a better similarity: after some epochs, Spearman's correlation on STS falls
    while the likelihood still rises. The fit is therefore short.

    Args:
        levels: the levels; after each but the last, half of the dimensions are left as they are.
        depth: the steps of a level.
        hidden: the hidden units of the network that computes the shifts of a step.
        epochs: passes over the embeddings.
        batch_size: embeddings per step of the optimizer. A batch of 32 pairs, as released, has 64.
        lr: the learning rate.
        standardize: start from means and scales with which the first batch has mean 0 and variance 1 at each step.
        seed: seeds the initial weights and the order of embeddings.

    Raises:
        UserError: in `fit`, if the embeddings have too few dimensions, or the likelihood diverges.

    Examples:
        >>> x = torch.randn(500, 8).exp()
        >>> Flow(epochs=2).fit(x).transform(x).shape
        torch.Size([500, 8])
    """

    name = "flow"

    def __init__(
        self,
        levels: PositiveInt = 3,
        depth: PositiveInt = 3,
        hidden: PositiveInt = 32,
        epochs: PositiveInt = 1,
        batch_size: PositiveInt = 64,
        lr: PositiveFloat = 1e-3,
        standardize: bool = False,
        seed: NonNegativeInt = 0,
    ) -> None:
        shape = {"levels": levels, "depth": depth, "hidden": hidden}
        super().__init__(**shape, epochs=epochs, batch_size=batch_size, lr=lr, standardize=standardize, seed=seed)
        self.shape, self.epochs, self.batch_size = shape, epochs, batch_size
        self.lr, self.standardize, self.seed = lr, standardize, seed

    def check_width(self, width: int) -> None:
        """Check the width as the base class does, and that the last level has two dimensions or more."""
        super().check_width(width)
        if width <= 2 ** (self.shape["levels"] - 1):
            raise UserError(f"postprocess.levels={self.shape['levels']}: too many for embeddings of {width} dimensions")

    def learn(self, x: Tensor) -> None:
        """Train the map by maximum likelihood."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            glow = Glow(x.shape[1], **self.shape).to(x.device)
        self.maximize_likelihood(glow, x.float())
        self._glow = glow.cpu().double()

    def maximize_likelihood(self, glow: "Glow", x: Tensor) -> None:
        """Train a map on `x` [n, dim]."""
        order = torch.Generator().manual_seed(self.seed)
        batches = [
            rows.to(x.device)
            for _ in range(self.epochs)
            for rows in torch.randperm(len(x), generator=order).split(self.batch_size)
        ]
        if self.standardize:
            glow.standardize(x[batches[0]])
        optimizer = _Adam(glow.parameters(), self.lr)
        with torch.enable_grad():
            for rows in tracked(batches, "fitting the flow"):
                loss = glow.loss(x[rows])
                loss.backward()
                nn.utils.clip_grad_norm_(glow.parameters(), _LARGEST_NORM)
                optimizer.step()
        if not loss.isfinite():
            raise UserError(f"postprocess.lr={self.lr}: the likelihood diverged; choose a smaller one")

    @torch.no_grad()
    def map(self, x: Tensor) -> Tensor:
        """Return the points of the Gaussian."""
        glow = self._glow.to(x.device)
        return torch.cat([glow(rows)[0] for rows in x.split(_ROWS_AT_A_TIME)])

    def tensors(self) -> dict[str, Tensor]:
        """Return the state dict of the map."""
        return dict(self._glow.state_dict())

    def restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        """Load the state dict of the map, if it has the names and the shapes of the options."""
        with torch.device("meta"):  # which needs no memory, if the file is smaller than the options say
            glow = Glow(width, **self.shape)
        glow.load_state_dict(tensors, assign=True)
        self._glow = glow


class Glow(nn.Module):
    """Glow (Kingma and Dhariwal 2018) for vectors, with additive couplings, as Li et al. released it.

    A step scales and shifts the dimensions, reverses their order, and adds a function of the first half to the second
    half. After a level, the second half of its dimensions belongs to the result, and the next level maps the first.

    Args:
        width: the dimensions, more than 2^(levels - 1).
        levels: the levels.
        depth: the steps of a level.
        hidden: the units of each of the two hidden layers of the function.
    """

    def __init__(self, width: int, levels: int, depth: int, hidden: int) -> None:
        super().__init__()
        widths = [math.ceil(width / 2**level) for level in range(levels)]
        self.levels = nn.ModuleList(nn.Sequential(*(_Step(own, hidden) for _ in range(depth))) for own in widths)

    @property
    def steps(self) -> list["_Step"]:
        """The steps of all levels."""
        return [module for module in self.modules() if isinstance(module, _Step)]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map `x` [n, width] to the result [n, width], and return its log-likelihood [n] in nats, too."""
        parts: list[Tensor] = []
        for number, level in enumerate(self.levels):
            if number:
                x, part = x.chunk(2, dim=-1)
                parts.append(part)
            x = level(x)
        z = torch.cat([*parts, x], dim=-1)
        log_scales = torch.cat([step.norm.log_scale for step in self.steps])
        log_density = -0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=-1)
        return z, log_density + _LOG_SCALE_FACTOR * log_scales.sum()

    def loss(self, x: Tensor) -> Tensor:
        """Return twice the mean of -log2 of the likelihood of `x` [n, width], per dimension: for both of a pair."""
        _, likelihood = self.forward(x)
        return -2 * likelihood.mean() / (x.shape[1] * math.log(2))

    @torch.no_grad()
    def standardize(self, x: Tensor) -> None:
        """Give the normalizations of steps and hidden layers outputs of mean 0 and variance 1 for `x` [n, width]."""
        norms = [norm for step in self.steps for norm in (step.norm, step.shift[1], step.shift[4])]
        hooks = [norm.register_forward_pre_hook(_Norm.standardize) for norm in norms]
        self(x)
        for hook in hooks:
            hook.remove()


class _Step(nn.Module):
    """A step of `Glow`. Its function is 0 at first."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = _Norm(width)
        layers: list[nn.Module] = []
        for inputs, outputs, std in ((-(-width // 2), hidden, 0.05), (hidden, hidden, 0.05), (hidden, width // 2, 0.0)):
            linear = nn.Linear(inputs, outputs, bias=False)
            nn.init.normal_(linear.weight, std=std)
            layers += [linear, _Norm(outputs), nn.ReLU()]
        self.shift = nn.Sequential(*layers[:-1])
        for weight in self.shift[-1].parameters():
            nn.init.zeros_(weight)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.norm(x).flip(-1).chunk(2, dim=-1)
        return torch.cat([first, second + self.shift(first)], dim=-1)


class _Norm(nn.Module):
    """(x + bias) exp(3 log_scale) of each dimension: actnorm. Initialized as by TensorFlow, uniformly."""

    def __init__(self, width: int) -> None:
        super().__init__()
        largest = math.sqrt(6 / (1 + width))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-largest, largest))
        self.log_scale = nn.Parameter(torch.empty(width).uniform_(-largest, largest))

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.bias) * torch.exp(_LOG_SCALE_FACTOR * self.log_scale)

    def standardize(self, inputs: tuple[Tensor]) -> None:
        """Give `inputs` mean 0 and variance 1. Dimensions that are constant up to rounding get mean 0 only."""
        x = as_float64(inputs[0])
        mean, deviation = x.mean(dim=0), x.std(dim=0, correction=0)
        varies = deviation > torch.finfo(inputs[0].dtype).eps * torch.maximum(mean.abs(), deviation.max())
        self.bias.copy_(-mean)
        self.log_scale.copy_(-torch.where(varies, deviation + 1e-6, 1.0).log() / _LOG_SCALE_FACTOR)


class _Adam:
    """Adam without bias correction and with decoupled weight decay, as released with BERT.

    Without the correction, steps are larger: six times after 10 steps, and twice after 270.
    """

    def __init__(self, weights: Iterable[nn.Parameter], lr: float) -> None:
        self.lr = lr
        self.moments = [(weight, torch.zeros_like(weight), torch.zeros_like(weight)) for weight in weights]

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights, and delete their gradients."""
        for weight, mean, square in self.moments:
            assert weight.grad is not None
            mean.lerp_(weight.grad, 0.1)
            square.lerp_(weight.grad.square(), 0.001)
            weight.sub_(self.lr * (mean / (square.sqrt() + 1e-6) + 0.01 * weight))
            weight.grad = None
