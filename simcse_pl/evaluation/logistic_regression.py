"""Logistic regressions of all folds and all values of C of a cross-validation, solved together.

This takes a fifteenth of the time of scikit-learn in a loop, see `benchmarks/transfer.py`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.utils.tensors import as_float64

_TOLERANCE = 1e-4  # a fit ends when the gradient norm, relative to the norm at zero weights, is below this
_NEWTON_STEPS = 50
_CG_STEPS = 50
_HALVINGS = 20


def fit_predict(features: Tensor, labels: Tensor, Cs: Tensor, fit_rows: Tensor) -> Tensor:
    """Fit one classifier per problem, and predict all rows with each.

    A problem minimizes scikit-learn's objective, C sum_i log loss_i + ||W||^2 / 2 over its own rows. The intercept is
    not penalized. Two classes have one weight vector; more classes have one each (multinomial). Newton's method with
    conjugate gradients (Lin, Weng and Keerthi 2008) solves all problems together, so that a step takes two products
    with the feature matrix. The features are first rotated to their principal axes, which makes the Hessian nearly
    diagonal and its diagonal a good preconditioner. The rotation does not change the penalty.

    Args:
        features: [n, dim].
        labels: [n], at least two classes, numbered from 0.
        Cs: [problems], inverse regularization strengths, above 0.
        fit_rows: [problems, n] boolean, the rows that each problem is fitted on.

    Returns:
        The predicted classes, [problems, n].
    """
    x = _principal_axes(features.float())
    classes = int(labels.max()) + 1
    targets = F.one_hot(labels, classes).float()
    if classes == 2:
        targets = targets[:, 1:]  # the logit of class 0 is fixed to 0
    logits = x @ _fit(x, targets, Cs.to(x), fit_rows.to(x)).flatten(1)
    logits = _with_reference(logits.view(len(x), len(Cs), -1))
    return logits.argmax(dim=-1).T


def _principal_axes(features: Tensor) -> Tensor:
    """Return [n, dim + 1]: the features centered and rotated, and a column of ones for the intercept."""
    centered = features - features.mean(dim=0)
    _, axes = torch.linalg.eigh(as_float64(centered.T @ centered))
    return F.pad(centered @ axes.to(centered), (0, 1), value=1.0)


def _with_reference(logits: Tensor) -> Tensor:
    """Prepend the logit of class 0 if there is only one logit [..., 1], as for two classes."""
    return F.pad(logits, (1, 0)) if logits.shape[-1] == 1 else logits


@dataclass
class _Problems:
    """Loss and derivatives of the unsolved problems. All weights and directions are [features, problems, outputs].

    Args:
        x: [n, features].
        targets: [n, 1, outputs].
        rows: [n, problems, 1], 1 for rows that are fitted on, else 0.
        penalty: [features, problems, 1].
    """

    x: Tensor
    targets: Tensor
    rows: Tensor
    penalty: Tensor

    def product(self, weights: Tensor) -> Tensor:
        """Return the logits [n, problems, outputs]."""
        return (self.x @ weights.flatten(1)).view(len(self.x), *weights.shape[1:])

    def transposed(self, residuals: Tensor) -> Tensor:
        return (self.x.T @ residuals.flatten(1)).view(-1, *residuals.shape[1:])

    def loss(self, logits: Tensor, weights: Tensor) -> Tensor:
        """Return the loss of each problem, [problems]."""
        likelihood = logits.mul(self.targets).sum(dim=-1) - _with_reference(logits).logsumexp(dim=-1)
        penalty = (self.penalty * weights.square()).sum(dim=(0, 2)) / 2
        return penalty - (likelihood * self.rows.squeeze(-1)).sum(dim=0)

    def gradient(self, probabilities: Tensor, weights: Tensor) -> Tensor:
        return self.transposed(self.rows * (probabilities - self.targets)) + self.penalty * weights

    def curvature(self, probabilities: Tensor, direction: Tensor) -> Tensor:
        """Return the Hessian's product with a direction."""
        change = self.product(direction)
        mean = (probabilities * change).sum(dim=-1, keepdim=True)
        return self.transposed(self.rows * probabilities * (change - mean)) + self.penalty * direction

    def diagonal(self, probabilities: Tensor) -> Tensor:
        """Return the Hessian's diagonal."""
        weights = self.rows * probabilities * (1 - probabilities)
        return (self.x.square().T @ weights.flatten(1)).view(-1, *weights.shape[1:]) + self.penalty

    def keep(self, problems: Tensor) -> "_Problems":
        return _Problems(self.x, self.targets, self.rows[:, problems], self.penalty[:, problems])


def _fit(x: Tensor, targets: Tensor, Cs: Tensor, fit_rows: Tensor) -> Tensor:
    """Return the weights [dim + 1, problems, outputs] that minimize each problem's loss."""
    penalty = (1 / Cs).repeat(x.shape[1], 1).unsqueeze(-1)
    penalty[-1] = 0
    problems = _Problems(x, targets.unsqueeze(1), fit_rows.T.unsqueeze(-1), penalty)
    solved = x.new_zeros(x.shape[1], len(Cs), targets.shape[1])
    unsolved = torch.arange(len(Cs), device=x.device)
    weights, logits = solved, problems.product(solved)
    goal: Tensor | None = None
    for _ in range(_NEWTON_STEPS):
        probabilities = _with_reference(logits).softmax(dim=-1)[..., -targets.shape[1] :]
        gradient = problems.gradient(probabilities, weights)
        norm = gradient.norm(dim=(0, 2))
        goal = norm * _TOLERANCE if goal is None else goal
        if (done := norm <= goal).any():
            solved[:, unsolved[done]] = weights[:, done]
            left = ~done
            problems, unsolved, goal = problems.keep(left), unsolved[left], goal[left]
            weights, logits, probabilities, gradient = (
                tensor[:, left] for tensor in (weights, logits, probabilities, gradient)
            )
        if not len(unsolved):
            return solved
        step = _newton_step(problems, probabilities, gradient)
        weights, logits = _descend(problems, weights, logits, gradient, step)
    solved[:, unsolved] = weights
    return solved


def _newton_step(problems: _Problems, probabilities: Tensor, gradient: Tensor) -> Tensor:
    """Solve Hessian step = -gradient approximately by preconditioned conjugate gradients."""
    scale = problems.diagonal(probabilities).clamp(min=torch.finfo(gradient.dtype).tiny)
    step = torch.zeros_like(gradient)
    residual = -gradient
    direction = residual / scale
    fit = _dot(residual, direction)
    goal = fit * 0.01
    for _ in range(_CG_STEPS):
        curved = problems.curvature(probabilities, direction)
        length = fit / _dot(direction, curved).clamp(min=torch.finfo(fit.dtype).tiny)
        step += length * direction
        residual -= length * curved
        scaled = residual / scale
        new_fit = _dot(residual, scaled)
        if (new_fit <= goal).all():
            break
        direction = scaled + new_fit / fit.clamp(min=torch.finfo(fit.dtype).tiny) * direction
        fit = new_fit
    return step


def _descend(
    problems: _Problems, weights: Tensor, logits: Tensor, gradient: Tensor, step: Tensor
) -> tuple[Tensor, Tensor]:
    """Take the step, halved until the loss decreases sufficiently (Armijo's rule)."""
    change = problems.product(step)
    loss = problems.loss(logits, weights)
    slope = (gradient * step).sum(dim=(0, 2))
    length = torch.ones_like(loss)
    rounding = 1e-6 * loss.abs()
    for _ in range(_HALVINGS):
        along = length.view(1, -1, 1)
        new_loss = problems.loss(logits + along * change, weights + along * step)
        too_far = new_loss > loss + 1e-4 * length * slope + rounding
        if not too_far.any():
            break
        length = torch.where(too_far, length / 2, length)
    along = length.view(1, -1, 1)
    return weights + along * step, logits + along * change


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the dot product per problem, [1, problems, 1]."""
    return (a * b).sum(dim=(0, 2), keepdim=True)
