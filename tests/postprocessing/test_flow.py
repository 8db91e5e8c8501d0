"""The flow: its likelihood against a numeric Jacobian, and the rise of the likelihood."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from simcse_pl.postprocessing.flow import Flow, mean_log_likelihood


@pytest.fixture(scope="module")
def skewed():
    """Correlated, skewed, of different sizes, and far from 0: [800, 6]."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(800, 6, generator=generator) @ torch.randn(6, 6, generator=generator)
    x[:, ::2] = torch.exp(0.4 * x[:, ::2])
    return x * torch.logspace(-1, 1, 6) + 3


@pytest.fixture(scope="module")
def fitted(skewed):
    return Flow(hidden=32, epochs=15, lr=3e-3).fit(skewed)


def likelihood(flow, x):
    return mean_log_likelihood(flow._flow, x.double())


def likelihood_of_independent_gaussians(x):
    x = x.double()
    return norm.logpdf(x, x.mean(dim=0), x.std(dim=0)).sum(axis=1).mean()


def test_the_likelihood_is_that_of_the_change_of_variables(fitted, skewed):
    x, step = skewed.double(), 1e-6
    ends = [[fitted.transform(x + sign * step * row) for row in torch.eye(6).double()] for sign in (1, -1)]
    jacobians = (torch.stack(ends[0], dim=-1) - torch.stack(ends[1], dim=-1)) / (2 * step)
    expected = norm.logpdf(fitted.transform(x)).sum(axis=1) + np.linalg.slogdet(jacobians.numpy()).logabsdet
    assert likelihood(fitted, skewed) == pytest.approx(expected.mean(), abs=1e-3)


def test_the_likelihood_rises_from_that_of_independent_gaussians(fitted, skewed):
    expected = likelihood_of_independent_gaussians(skewed)
    first, after_12 = (Flow(hidden=32, epochs=epochs, lr=lr).fit(skewed) for epochs, lr in ((1, 1e-12), (12, 3e-3)))
    assert likelihood(first, skewed) == pytest.approx(expected, abs=1e-3)
    assert likelihood(fitted, skewed) > max(likelihood(after_12, skewed), expected + 1)


def test_a_seed_gives_one_flow_and_keeps_the_global_random_state(skewed):
    state = torch.get_rng_state()
    with torch.no_grad():  # which must not switch off the fit
        first, second, other = (Flow(hidden=8, epochs=1, seed=seed).fit(skewed) for seed in (0, 0, 1))
    assert likelihood(first, skewed) > likelihood_of_independent_gaussians(skewed)
    assert torch.equal(first.transform(skewed), second.transform(skewed))
    assert not torch.equal(first.transform(skewed), other.transform(skewed))
    assert torch.equal(torch.get_rng_state(), state)
