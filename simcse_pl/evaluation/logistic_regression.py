"""Many logistic regressions over the same features at once: every fold and every strength of a cross-validation."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.utils.tensors import as_float64

_GRADIENT_FALLS_TO = 1e-4  # of its norm at weights of zero: there a fit ends
_NEWTON_STEPS = 50
_CONJUGATE_STEPS = 50
_HALVINGS = 20


def fit_predict(features: Tensor, labels: Tensor, strengths: Tensor, fit_rows: Tensor) -> Tensor:
    """Fit one classifier a problem, and predict every row with each of them.

    A problem minimizes scikit-learn's objective, C sum_i log loss_i + ||W||^2 / 2 over its own rows, with an intercept
    that is not penalized: two classes have one weight vector, more have one each (multinomial). All problems are solved
    together, by Newton's method with conjugate gradients (Lin, Weng and Keerthi 2008), so that a step of all of them is
    two products with the one feature matrix. The features are turned to their principal axes first, where the Hessian
    is nearly diagonal and its diagonal a good preconditioner; the penalty does not feel the rotation.

    Args:
        features: [n, dim].
        labels: [n], classes from 0 to the largest label, which is 1 at least.
        strengths: [problems], C of each, above 0: the larger, the weaker the penalty.
        fit_rows: [problems, n] boolean, the rows that a problem is fitted on.

    Returns:
        The predicted classes, [problems, n].
    """
    x = _principal_axes(features.float())
    classes = int(labels.max()) + 1
    targets = F.one_hot(labels, classes).float()
    if classes == 2:
        targets = targets[:, 1:]  # the other class's logit is zero
    logits = x @ _fit(x, targets, strengths.to(x), fit_rows.to(x)).flatten(1)
    logits = _with_reference(logits.view(len(x), len(strengths), -1))
    return logits.argmax(dim=-1).T


def _principal_axes(features: Tensor) -> Tensor:
    """The features, centered and rotated, and a column of ones for the intercept: [n, dim + 1]."""
    centered = features - features.mean(dim=0)
    _, axes = torch.linalg.eigh(as_float64(centered.T @ centered))
    return F.pad(centered @ axes.to(centered), (0, 1), value=1.0)


def _with_reference(logits: Tensor) -> Tensor:
    """Two classes have one logit, [..., 1]: put the other's, zero, before it."""
    return F.pad(logits, (1, 0)) if logits.shape[-1] == 1 else logits


@dataclass
class _Problems:
    """Problems that are not yet solved: at their present weights, what the next step needs.

    `x` is [n, features], `targets` [n, 1, outputs], `rows` [n, problems, 1] (1 where a row is fitted on), `penalty`
    [features, problems, 1], and everything about weights [features, problems, outputs].
    """

    x: Tensor
    targets: Tensor
    rows: Tensor
    penalty: Tensor

    def product(self, weights: Tensor) -> Tensor:
        """Logits, [n, problems, outputs]."""
        return (self.x @ weights.flatten(1)).view(len(self.x), *weights.shape[1:])

    def transposed(self, residuals: Tensor) -> Tensor:
        return (self.x.T @ residuals.flatten(1)).view(-1, *residuals.shape[1:])

    def loss(self, logits: Tensor, weights: Tensor) -> Tensor:
        """[problems]."""
        likelihood = logits.mul(self.targets).sum(dim=-1) - _with_reference(logits).logsumexp(dim=-1)
        penalty = (self.penalty * weights.square()).sum(dim=(0, 2)) / 2
        return penalty - (likelihood * self.rows.squeeze(-1)).sum(dim=0)

    def gradient(self, probabilities: Tensor, weights: Tensor) -> Tensor:
        return self.transposed(self.rows * (probabilities - self.targets)) + self.penalty * weights

    def curvature(self, probabilities: Tensor, direction: Tensor) -> Tensor:
        """The Hessian's product with a direction."""
        moved = self.product(direction)
        mean = (probabilities * moved).sum(dim=-1, keepdim=True)
        return self.transposed(self.rows * probabilities * (moved - mean)) + self.penalty * direction

    def diagonal(self, probabilities: Tensor) -> Tensor:
        """The Hessian's diagonal."""
        weights = self.rows * probabilities * (1 - probabilities)
        return (self.x.square().T @ weights.flatten(1)).view(-1, *weights.shape[1:]) + self.penalty

    def keep(self, problems: Tensor) -> "_Problems":
        return _Problems(self.x, self.targets, self.rows[:, problems], self.penalty[:, problems])


def _fit(x: Tensor, targets: Tensor, strengths: Tensor, fit_rows: Tensor) -> Tensor:
    """Weights [dim + 1, problems, outputs] that minimize each problem's loss."""
    penalty = (1 / strengths).repeat(x.shape[1], 1).unsqueeze(-1)
    penalty[-1] = 0
    problems = _Problems(x, targets.unsqueeze(1), fit_rows.T.unsqueeze(-1), penalty)
    solved = x.new_zeros(x.shape[1], len(strengths), targets.shape[1])
    unsolved = torch.arange(len(strengths), device=x.device)
    weights, logits = solved, problems.product(solved)
    goal: Tensor | None = None
    for _ in range(_NEWTON_STEPS):
        probabilities = _with_reference(logits).softmax(dim=-1)[..., -targets.shape[1] :]
        gradient = problems.gradient(probabilities, weights)
        norm = gradient.norm(dim=(0, 2))
        goal = norm * _GRADIENT_FALLS_TO if goal is None else goal
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
    """Solve Hessian step = -gradient roughly, more closely the smaller the gradient, by conjugate gradients."""
    scale = problems.diagonal(probabilities).clamp(min=torch.finfo(gradient.dtype).tiny)
    step = torch.zeros_like(gradient)
    residual = -gradient
    direction = residual / scale
    fit = _dot(residual, direction)
    goal = fit * 0.01
    for _ in range(_CONJUGATE_STEPS):
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
    """Take the step, halved where the loss would not fall by a share of what the gradient promises (Armijo)."""
    moved = problems.product(step)
    loss = problems.loss(logits, weights)
    promised = (gradient * step).sum(dim=(0, 2))
    length = torch.ones_like(loss)
    rounding = 1e-6 * loss.abs()
    for _ in range(_HALVINGS):
        along = length.view(1, -1, 1)
        new_loss = problems.loss(logits + along * moved, weights + along * step)
        too_far = new_loss > loss + 1e-4 * length * promised + rounding
        if not too_far.any():
            break
        length = torch.where(too_far, length / 2, length)
    along = length.view(1, -1, 1)
    return weights + along * step, logits + along * moved


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """[1, problems, 1]."""
    return (a * b).sum(dim=(0, 2), keepdim=True)
