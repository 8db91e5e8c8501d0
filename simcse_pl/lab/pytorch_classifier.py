"""SentEval's PyTorch classifier, a trained linear layer, with the two settings of SimCSE's evaluation script.

Tables E.1 and D.2 of the paper need it: its predictions equal SentEval's, and differ from those of logistic regression.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

WEIGHT_DECAYS = (1e-5, 1e-4, 1e-3, 1e-2)
_SEED = 1111
_LAST_EPOCH = 200  # no round begins after more epochs
_HELD_OUT = 0.05


@dataclass(frozen=True)
class Training:
    """How a classifier is trained."""

    optimizer: type[torch.optim.Adam] | type[torch.optim.RMSprop]  # with its default options
    batch_size: int  # rows of a step
    epochs: int  # of a round; early stopping scores after each round
    patience: int  # rounds without improvement, not necessarily consecutive; the next such round ends training
    folds: int  # of cross-validation, of all splits


FULL = Training(torch.optim.Adam, batch_size=64, epochs=4, patience=5, folds=10)
FAST = Training(torch.optim.RMSprop, batch_size=128, epochs=2, patience=3, folds=5)


@dataclass(frozen=True)
class Problem:
    """The rows and regularization values of one fit."""

    rows: np.ndarray  # positions of the rows to fit on
    stop_by: np.ndarray | None  # rows for early stopping; None for a random 5 % of `rows`, which are then not fitted on
    grid: Sequence[float]  # weight decays, or values of C for scikit-learn's classifier; one classifier each


@torch.no_grad()
def fit_predict(features: Tensor, labels: Tensor, problems: Sequence[Problem], training: Training = FULL) -> np.ndarray:
    """Train the classifiers of all problems, and predict all rows with each.

    SentEval seeds each fit with the same seed. Fits on the same number of rows therefore have the same initial weights
    and the same order of batches, and are trained together.

    Args:
        features: [n, dim].
        labels: [n], classes numbered from 0.
        problems: all with the same number of weight decays.
        training: how each is trained.

    Returns:
        The predicted classes, [problems, decays, n].
    """
    x = F.pad(features.float(), (0, 1), value=1.0)  # weight decay applies to the bias too
    targets = F.one_hot(labels).to(x)
    predicted = np.empty((len(problems), len(problems[0].grid), len(x)), dtype=np.int64)
    sizes = [(len(problem.rows), problem.stop_by is None) for problem in problems]
    for size in dict.fromkeys(sizes):
        together = [i for i, other in enumerate(sizes) if other == size]
        predicted[together] = _fit_predict(x, targets, [problems[i] for i in together], training).cpu()
    return predicted


def _fit_predict(x: Tensor, targets: Tensor, problems: Sequence[Problem], how: Training) -> Tensor:
    """Train and predict as `fit_predict` does, for problems with the same number of rows."""
    random = np.random.RandomState(_SEED)
    rows, stop_by = (tensor.to(x.device) for tensor in _split(problems, len(x), random))
    decays = torch.tensor([problem.grid for problem in problems])[..., None, None].to(x)
    weights = _initial_weights(x, targets).repeat(*decays.shape[:2], 1, 1)  # [problems, decays, classes, dim + 1]
    optimizer, best = how.optimizer([weights]), weights.clone()
    most = torch.full(decays.shape[:2], -1, device=x.device)  # correct rows at the best round
    misses, training = torch.zeros_like(most), torch.ones_like(most, dtype=torch.bool)
    active = torch.arange(len(problems), device=x.device)  # the problems that are still trained
    for _ in range(0, _LAST_EPOCH + 1, how.epochs):
        for _ in range(how.epochs):
            for batch in torch.from_numpy(random.permutation(rows.shape[1])).to(x.device).split(how.batch_size):
                batch_rows = rows[:, batch]
                weights.grad = _gradient(weights, x[batch_rows], targets[batch_rows]) + decays * weights
                optimizer.step()
        correct = ((_classes(x, weights) == targets.argmax(dim=1)) & stop_by).sum(dim=-1)
        better = training & (correct > most)
        most = torch.where(better, correct, most)
        best[active] = torch.where(better[..., None, None], weights, best[active])
        training &= better | (misses < how.patience)
        misses += ~better
        left = training.any(dim=1)  # problems with a classifier that has not stopped
        if not left.any():
            break
        if not left.all():
            state_of_problems = rows, stop_by, decays, most, misses, training, active
            rows, stop_by, decays, most, misses, training, active = (tensor[left] for tensor in state_of_problems)
            weights.data, state = weights.data[left], optimizer.state[weights]
            state.update({name: x[left] for name, x in state.items() if x.ndim})  # all but the number of steps
    return _classes(x, best)


def _split(problems: Sequence[Problem], count: int, random: np.random.RandomState) -> tuple[Tensor, Tensor]:
    """Return the rows to fit on, [problems, rows], and which rows early stopping uses, [problems, 1, count] bool."""
    rows: np.ndarray = np.stack([problem.rows for problem in problems])
    held_out: Any = [problem.stop_by for problem in problems]
    if held_out[0] is None:
        order = random.permutation(rows.shape[1])
        held_out, rows = np.split(rows[:, order], [int(_HELD_OUT * len(order))], axis=1)
    stop_by = np.zeros((len(problems), 1, count), dtype=bool)
    for i, stopping in enumerate(held_out):
        stop_by[i, :, stopping] = True
    return torch.from_numpy(rows), torch.from_numpy(stop_by)


def _initial_weights(x: Tensor, targets: Tensor) -> Tensor:
    """Return the weights of torch's linear layer, the bias in the last column, [classes, dim + 1]."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        layer = nn.Linear(x.shape[1] - 1, targets.shape[1])
    return torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().to(x)


def _gradient(weights: Tensor, x: Tensor, targets: Tensor) -> Tensor:
    """Return the gradient of the mean cross-entropy of a batch, x [problems, rows, dim + 1], like `weights`."""
    logits = (x @ weights.flatten(1, 2).mT).unflatten(-1, weights.shape[1:3])
    errors = (logits.softmax(dim=-1) - targets.unsqueeze(2)) / x.shape[1]
    gradient: Tensor = errors.flatten(2).mT @ x
    return gradient.view_as(weights)


def _classes(x: Tensor, weights: Tensor) -> Tensor:
    """Return the predicted classes, [problems, decays, n]."""
    return (x @ weights.mT).argmax(dim=-1)
