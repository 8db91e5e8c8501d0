"""SentEval's PyTorch classifier: a linear layer trained with Adam, with early stopping on held-out rows.

The settings are those of SimCSE's evaluation script. The classifiers of all folds and weight decays of a
cross-validation are trained together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

WEIGHT_DECAYS = (1e-5, 1e-4, 1e-3, 1e-2)
_SEED = 1111
_BATCH_SIZE = 64
_EPOCHS_PER_ROUND = 4
_ROUNDS = 51  # SentEval begins rounds up to and including epoch 200
_PATIENCE = 5  # rounds without improvement, not necessarily consecutive, before the one that ends training
_HELD_OUT = 0.05
_LEARNING_RATE, _BETA_1, _BETA_2, _EPSILON = 1e-3, 0.9, 0.999, 1e-8  # torch.optim.Adam's defaults


@dataclass(frozen=True)
class Problem:
    """The rows and regularization values of one fit.

    Args:
        rows: positions of the rows to fit on.
        stop_by: rows for early stopping; None for a random 5 % of `rows`, which are then not fitted on.
        grid: regularization values, one classifier each: weight decays, or values of C for scikit-learn's classifier.
    """

    rows: np.ndarray
    stop_by: np.ndarray | None
    grid: Sequence[float]


@torch.no_grad()
def fit_predict(features: Tensor, labels: Tensor, problems: Sequence[Problem]) -> np.ndarray:
    """Train the classifiers of all problems, and predict all rows with each.

    SentEval seeds each fit with the same seed. Fits on the same number of rows therefore have the same initial weights
    and the same order of batches, and are trained together.

    Args:
        features: [n, dim].
        labels: [n], classes numbered from 0.
        problems: all with the same number of weight decays.

    Returns:
        The predicted classes, [problems, decays, n].
    """
    x = F.pad(features.float(), (0, 1), value=1.0)  # weight decay applies to the bias too
    targets = F.one_hot(labels).to(x)
    predicted = np.empty((len(problems), len(problems[0].grid), len(x)), dtype=np.int64)
    sizes = [(len(problem.rows), problem.stop_by is None) for problem in problems]
    for size in dict.fromkeys(sizes):
        together = [i for i, own in enumerate(sizes) if own == size]
        predicted[together] = _fit_predict(x, targets, [problems[i] for i in together])
    return predicted


def _fit_predict(x: Tensor, targets: Tensor, problems: Sequence[Problem]) -> np.ndarray:
    """Do the same for problems with the same number of rows."""
    random = np.random.RandomState(_SEED)
    rows = torch.from_numpy(np.stack([problem.rows for problem in problems])).to(x.device)
    stop_by = torch.zeros(len(x), len(problems), 1, dtype=torch.bool)
    if problems[0].stop_by is None:
        order = torch.from_numpy(random.permutation(rows.shape[1])).to(x.device)
        held_out, rows = rows[:, order].tensor_split([int(_HELD_OUT * rows.shape[1])], dim=1)
        stop_by[held_out.T.cpu(), torch.arange(len(problems))] = True
    else:
        for i, problem in enumerate(problems):
            stop_by[problem.stop_by, i] = True
    fits = _Fits(x, targets, rows, torch.tensor([problem.grid for problem in problems]))
    stop_by = stop_by.to(x.device)
    best = fits.weights.clone()
    most = torch.full(fits.weights.shape[:2], -1, device=x.device)  # correct rows at the best round
    misses, training = torch.zeros_like(most), torch.ones_like(most, dtype=torch.bool)
    for _ in range(_ROUNDS):
        for _ in range(_EPOCHS_PER_ROUND):
            for batch in torch.from_numpy(random.permutation(rows.shape[1])).to(x.device).split(_BATCH_SIZE):
                fits.step(batch)
        correct = (_classes(x, fits.weights) == targets.argmax(dim=1)[:, None, None]) & stop_by[:, fits.active]
        count = torch.full_like(most, -1)
        count[fits.active] = correct.sum(dim=0)
        better = training & (count > most)
        most = torch.where(better, count, most)
        now = torch.zeros_like(best)
        now[fits.active] = fits.weights
        best = torch.where(better[..., None, None], now, best)
        training &= better | (misses < _PATIENCE)
        misses += ~better
        if not training.any():
            break
        fits.keep(training.any(dim=1)[fits.active])
    predicted: np.ndarray = _classes(x, best).permute(1, 2, 0).cpu().numpy()
    return predicted


def _classes(x: Tensor, weights: Tensor) -> Tensor:
    """Return the predicted classes, [n, problems, decays]."""
    return (x @ weights.flatten(0, 2).T).view(len(x), *weights.shape[:3]).argmax(dim=-1)


class _Fits:
    """Weights [problems, decays, classes, dim + 1] in training, and the state of Adam.

    Attributes:
        active: positions of the problems that are still trained.
    """

    def __init__(self, x: Tensor, targets: Tensor, rows: Tensor, decays: Tensor) -> None:
        self.x, self.targets, self.rows = x, targets, rows
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            layer = nn.Linear(x.shape[1] - 1, targets.shape[1])
        initial = torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().to(x)
        self.weights = initial.repeat(*decays.shape, 1, 1)
        self.decays = decays.to(x)[..., None, None]
        self.mean, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.steps = 0
        self.active = torch.arange(len(rows), device=x.device)

    def step(self, batch: Tensor) -> None:
        """Take one step of Adam on the mean cross-entropy of a batch; weight decay is added to the gradient."""
        rows = self.rows[:, batch]
        x = self.x[rows]
        logits = (x @ self.weights.flatten(1, 2).mT).unflatten(-1, self.weights.shape[1:3])
        errors = (logits.softmax(dim=-1) - self.targets[rows].unsqueeze(2)) / len(batch)
        gradient = (errors.flatten(2).mT @ x).view_as(self.weights) + self.decays * self.weights
        self.steps += 1
        self.mean.lerp_(gradient, 1 - _BETA_1)
        self.square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1 - _BETA_2)
        scale = (self.square / (1 - _BETA_2**self.steps)).sqrt_().add_(_EPSILON)
        self.weights.addcdiv_(self.mean, scale, value=-_LEARNING_RATE / (1 - _BETA_1**self.steps))

    def keep(self, problems: Tensor) -> None:
        """Keep only some of the problems, given as a boolean mask."""
        if not problems.all():
            for name in ("rows", "weights", "decays", "mean", "square", "active"):
                setattr(self, name, getattr(self, name)[problems])
