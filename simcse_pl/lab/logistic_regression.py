"""Logistic regressions of all folds and all values of C of a cross-validation, solved together.

SentEval fits them one after the other with scikit-learn, which takes 17 times as long (`benchmarks/transfer.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.lab.pytorch_classifier import Problem
from simcse_pl.utils.tensors import as_float64

_TOLERANCE = 1e-4  # a fit ends when the gradient norm, relative to the norm at zero weights, is below this
_NEWTON_STEPS = 50
_CG_STEPS = 50
_HALVINGS = 20
_MOST_LOGITS = 2**28  # of all problems together: they are held seven times; beyond, each value of C is alone


def fit_predict(features: Tensor, labels: Tensor, problems: Sequence[Problem]) -> np.ndarray:
    """Fit one classifier per problem and value of C, and predict all rows with each.

    A classifier minimizes scikit-learn's objective, C sum_i log loss_i + ||W||^2 / 2 over its own rows. The intercept
    is not penalized. Two classes have one weight vector; more classes have one each (multinomial). Newton's method with
    conjugate gradients (Lin, Weng and Keerthi 2008) solves all problems together, so that a step takes two products
    with the feature matrix. The features are first rotated to their principal axes, which makes the Hessian's diagonal
    a good preconditioner. The rotation does not change the penalty.

    Args:
        features: [n, dim].
        labels: [n], at least two classes, numbered from 0.
        problems: the rows to fit on, and the values of C, the inverse strengths of the penalty; equally many in each.

    Returns:
        The predicted classes, [problems, values of C, n].
    """
    count = len(problems[0].grid)
    if count > 1 and len(features) * (int(labels.max()) + 1) * len(problems) * count > _MOST_LOGITS:
        single = ([replace(problem, grid=problem.grid[i : i + 1]) for problem in problems] for i in range(count))
        return np.concatenate([fit_predict(features, labels, each) for each in single], axis=1)
    centered = features.float() - features.float().mean(dim=0)
    _, axes = torch.linalg.eigh(as_float64(centered.T @ centered))
    x = F.pad(centered @ axes.to(centered), (0, 1), value=1.0)  # [n, dim + 1], the last column for the intercept
    targets = F.one_hot(labels, int(labels.max()) + 1).float()
    if targets.shape[1] == 2:
        targets = targets[:, 1:]  # the logit of class 0 is fixed to 0
    Cs = torch.tensor([problem.grid for problem in problems])
    rows = torch.zeros(len(x), *Cs.shape)
    for i, problem in enumerate(problems):
        rows[problem.rows, i] = 1
    penalty = (1 / Cs.flatten().to(x)).repeat(x.shape[1], 1).unsqueeze(-1)
    penalty[-1] = 0
    fits = _Problems(x, targets.unsqueeze(1), rows.flatten(1).unsqueeze(-1).to(x), penalty)
    predicted = _with_reference(fits.product(_fit(fits))).argmax(dim=-1)
    return predicted.T.view(*Cs.shape, -1).cpu().numpy()


def _with_reference(logits: Tensor) -> Tensor:
    """Prepend the logit of class 0 if there is only one logit [..., 1], as for two classes."""
    return F.pad(logits, (1, 0)) if logits.shape[-1] == 1 else logits


@dataclass
class _Problems:
    """Loss and derivatives of problems. All weights and directions are [features, problems, outputs]."""

    x: Tensor  # [n, features]
    targets: Tensor  # [n, 1, outputs]
    rows: Tensor  # [n, problems, 1], 1 for rows that are fitted on, else 0
    penalty: Tensor  # [features, problems, 1]

    def product(self, weights: Tensor) -> Tensor:
        """Return the logits [n, problems, outputs]."""
        return (self.x @ weights.flatten(1)).view(len(self.x), *weights.shape[1:])

    def loss(self, logits: Tensor, weights: Tensor) -> Tensor:
        """Return the loss of each problem, [1, problems, 1]."""
        likelihood = _dot(logits, self.rows * self.targets)
        normalizer = _dot(_with_reference(logits).logsumexp(dim=-1, keepdim=True), self.rows)
        return _dot(self.penalty * weights, weights) / 2 - likelihood + normalizer

    def gradient(self, probabilities: Tensor, weights: Tensor) -> Tensor:
        return _transposed(self.x, self.rows * (probabilities - self.targets)) + self.penalty * weights

    def curvature(self, probabilities: Tensor, direction: Tensor) -> Tensor:
        """Return the Hessian's product with a direction."""
        change = self.product(direction)
        mean = (probabilities * change).sum(dim=-1, keepdim=True)
        return _transposed(self.x, self.rows * probabilities * (change - mean)) + self.penalty * direction

    def diagonal(self, probabilities: Tensor) -> Tensor:
        """Return the Hessian's diagonal."""
        return _transposed(self.x.square(), self.rows * probabilities * (1 - probabilities)) + self.penalty


def _fit(problems: _Problems) -> Tensor:
    """Return the weights that minimize each problem's loss; solved problems are left out of further steps."""
    (_, count, _), outputs = problems.rows.shape, problems.targets.shape[-1]
    solution = problems.x.new_zeros(problems.x.shape[1], count, outputs)
    unsolved = torch.arange(count, device=solution.device)
    weights, logits = solution, problems.product(solution)
    goal: Tensor | None = None
    for _ in range(_NEWTON_STEPS):
        probabilities = _with_reference(logits).softmax(dim=-1)[..., -outputs:]
        gradient = problems.gradient(probabilities, weights)
        norm = gradient.norm(dim=(0, 2))
        goal = norm * _TOLERANCE if goal is None else goal
        left = norm > goal
        if not left.any():
            break
        problems = replace(problems, rows=problems.rows[:, left], penalty=problems.penalty[:, left])
        unsolved, goal = unsolved[left], goal[left]
        weights, logits, probabilities, gradient = (x[:, left] for x in (weights, logits, probabilities, gradient))
        step = _newton_step(problems, probabilities, gradient)
        weights, logits = _descend(problems, weights, logits, gradient, step)
        solution[:, unsolved] = weights
    return solution


def _newton_step(problems: _Problems, probabilities: Tensor, gradient: Tensor) -> Tensor:
    """Solve Hessian step = -gradient approximately by preconditioned conjugate gradients."""
    tiny = torch.finfo(gradient.dtype).tiny
    scale = problems.diagonal(probabilities).clamp(min=tiny)
    step = torch.zeros_like(gradient)
    residual = -gradient
    direction = residual / scale
    fit = _dot(residual, direction)
    goal = fit * 0.01
    for _ in range(_CG_STEPS):
        curved = problems.curvature(probabilities, direction)
        length = fit / _dot(direction, curved).clamp(min=tiny)
        step += length * direction
        residual -= length * curved
        scaled = residual / scale
        new_fit = _dot(residual, scaled)
        if (new_fit <= goal).all():
            break
        direction = scaled + new_fit / fit.clamp(min=tiny) * direction
        fit = new_fit
    return step


def _descend(
    problems: _Problems, weights: Tensor, logits: Tensor, gradient: Tensor, step: Tensor
) -> tuple[Tensor, Tensor]:
    """Take the step, halved until the loss decreases sufficiently (Armijo's rule)."""
    change, loss = problems.product(step), problems.loss(logits, weights)
    slope, rounding = _dot(gradient, step), 1e-6 * loss.abs()
    length = torch.ones_like(loss)
    for _ in range(_HALVINGS):
        new_loss = problems.loss(logits + length * change, weights + length * step)
        too_far = new_loss > loss + 1e-4 * length * slope + rounding
        if not too_far.any():
            break
        length = torch.where(too_far, length / 2, length)
    return weights + length * step, logits + length * change


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the dot product per problem, [1, problems, 1]."""
    return (a * b).sum(dim=(0, 2), keepdim=True)


def _transposed(x: Tensor, residuals: Tensor) -> Tensor:
    """Return the product of `x` transposed with residuals [n, problems, outputs]: [features, problems, outputs]."""
    return (x.T @ residuals.flatten(1)).view(-1, *residuals.shape[1:])
