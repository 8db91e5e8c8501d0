"""BERT-flow (Li et al. 2020, "On the Sentence Embeddings from Pre-trained Language Models")."""

import math

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.terminal import tracked

_LEVELS, _STEPS = 3, 3  # of Glow, and of a level
_FEWEST = 2 ** (_LEVELS - 1) + 1  # dimensions, so that each level has two parts


class Flow(PostProcess):
    """An invertible map of embeddings to a standard Gaussian, fitted by maximum likelihood (Li et al., section 3).

    The map, its loss (see `Glow`) and the fit are those of the released code: gradients are clipped to norm 1, and
    the optimizer is Adam without bias correction, with weight decay 0.01 and a constant learning rate.

    The released fit starts from random scales, so it suits embeddings whose dimensions have means near 0 and standard
    deviations near 1. For others, set `standardize`: the released code has this start, but its script does not run it.

    A higher likelihood is not a better similarity: after some epochs, Spearman's correlation on STS falls
    while the likelihood still rises. The fit is therefore short.

    Args:
        epochs: passes over the embeddings.
        batch_size: embeddings per step of the optimizer. A batch of 32 pairs, as released, has 64.
        lr: the learning rate.
        standardize: start from means and scales with which the first batch has mean 0 and variance 1 at each step.
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
        epochs: PositiveInt = 1,
        batch_size: PositiveInt = 64,
        lr: PositiveFloat = 1e-3,
        standardize: bool = False,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(epochs=epochs, batch_size=batch_size, lr=lr, standardize=standardize, seed=seed)
        self.epochs, self.batch_size, self.lr, self.standardize, self.seed = epochs, batch_size, lr, standardize, seed

    def learn(self, x: Tensor) -> None:
        if x.shape[1] < _FEWEST:
            raise UserError(f"flow: it needs {_FEWEST} dimensions or more, not {x.shape[1]}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            glow = Glow(x.shape[1]).to(x.device)
        self.maximize_likelihood(glow, x.float())
        self._glow = glow.cpu().double()

    def maximize_likelihood(self, glow: "Glow", x: Tensor) -> None:
        """Train a map on `x` [n, dim]."""
        order = torch.Generator().manual_seed(self.seed)
        epochs = [torch.randperm(len(x), generator=order).split(self.batch_size) for _ in range(self.epochs)]
        batches = [rows.to(x.device) for epoch in epochs for rows in epoch]
        if self.standardize:
            glow.standardize(x[batches[0]])
        optimizer = torch.optim.AdamW(glow.parameters())
        with torch.enable_grad():
            for step, rows in enumerate(tracked(batches, "fitting the flow"), start=1):
                optimizer.param_groups[0].update(_without_bias_correction(step, self.lr))
                optimizer.zero_grad()
                loss = glow.loss(x[rows])
                loss.backward()
                nn.utils.clip_grad_norm_(glow.parameters(), max_norm=1.0)
                optimizer.step()
        if not loss.isfinite():
            raise UserError(f"postprocess.lr={self.lr}: the likelihood diverged; choose a smaller one")

    @torch.no_grad()
    def map(self, x: Tensor) -> Tensor:
        return self._glow.to(x.device).forward(x)[0]

    def tensors(self) -> dict[str, Tensor]:
        return dict(self._glow.state_dict())

    def restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        with torch.device("meta"):  # without random numbers
            glow = Glow(width)
        glow.load_state_dict(tensors, assign=True)
        self._glow = glow


class Glow(nn.Module):
    """Glow (Kingma and Dhariwal 2018) for vectors, with additive couplings, as Li et al. released it.

    There are 3 levels of 3 steps. A step scales and shifts the dimensions, reverses their order, and adds a function
    of the first half to the second half. After a level, the second half of its dimensions belongs to the result, and
    the next level maps the first.

    Args:
        width: the dimensions, at least 5.
        hidden: the units of each of the two hidden layers of the function.
    """

    def __init__(self, width: int, hidden: int = 32) -> None:
        super().__init__()
        widths = [math.ceil(width / 2**level) for level in range(_LEVELS) for _ in range(_STEPS)]
        self.steps = nn.ModuleList(_Step(step_width, hidden) for step_width in widths)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map `x` [n, width] to the result [n, width], and return its log-likelihood [n] in nats, too."""
        parts: list[Tensor] = []
        log_likelihood = x.new_zeros(())
        for number, step in enumerate(self.steps):
            if number and number % _STEPS == 0:
                x, part = x.chunk(2, dim=-1)
                parts.append(part)
            x, log_volume = step(x)
            log_likelihood = log_likelihood + log_volume
        z = torch.cat([*parts, x], dim=-1)
        return z, log_likelihood - 0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=-1)

    def loss(self, x: Tensor) -> Tensor:
        """Return twice the mean of -log2 of the likelihood of `x` [n, width], per dimension: for both of a pair."""
        return -2 * self.forward(x)[1].mean() / (x.shape[1] * math.log(2))

    @torch.no_grad()
    def standardize(self, x: Tensor) -> None:
        """Give the normalizations outputs of mean 0 and variance 1 for `x` [n, width], before the fit."""
        norms = [module for module in self.modules() if isinstance(module, _Norm)]
        hooks = [norm.register_forward_pre_hook(_Norm.standardize) for norm in norms]
        self(x)
        for hook in hooks:
            hook.remove()


class _Step(nn.Module):
    """A step of `Glow`, with the logarithm of its change of volume. Its function is 0 at first."""

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

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = self.norm(x).flip(-1).chunk(2, dim=-1)
        return torch.cat([first, second + self.shift(first)], dim=-1), 3 * self.norm.log_scale.sum()


class _Norm(nn.Module):
    """(x + bias) exp(3 log_scale) of each dimension: actnorm. Initialized as by TensorFlow, uniformly."""

    def __init__(self, width: int) -> None:
        super().__init__()
        largest = math.sqrt(6 / (1 + width))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-largest, largest))
        self.log_scale = nn.Parameter(torch.empty(width).uniform_(-largest, largest))

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.bias) * torch.exp(3 * self.log_scale)

    def standardize(self, inputs: tuple[Tensor]) -> None:
        """Give `inputs` mean 0 and variance 1. Dimensions that are constant up to rounding get mean 0 only."""
        [x] = inputs
        mean, deviation = x.mean(dim=0), x.std(dim=0, correction=0)
        varies = deviation > torch.finfo(x.dtype).eps * torch.maximum(mean.abs(), deviation.max())
        self.bias.copy_(-mean)
        self.log_scale.copy_(-torch.where(varies, deviation + 1e-6, 1.0).log() / 3)


def _without_bias_correction(step: int, lr: float) -> dict[str, float]:
    """Return the options with which a step of AdamW is one of BERT's optimizer: without bias correction.

    Steps are thus larger than with the correction: six times after 10 steps, and twice after 270.
    """
    mean, deviation = 1 - 0.9**step, math.sqrt(1 - 0.999**step)  # the corrections
    return {"lr": lr * mean / deviation, "eps": 1e-6 / deviation, "weight_decay": 0.01 * deviation / mean}
