"""The flow: its likelihood against a numeric Jacobian, its inverse, and the rise of the likelihood."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from simcse_pl.postprocessing.flow import Flow
from simcse_pl.utils.errors import UserError


@pytest.fixture(scope="module")
def skewed():
    """Correlated, skewed, of different sizes, and far from 0: [800, 6] for fitting and [200, 6] held out."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 6, generator=generator)
    x = x @ torch.randn(6, 6, generator=generator)
    x[:, ::2] = torch.exp(0.4 * x[:, ::2])
    x = x * torch.logspace(-1, 1, 6) + 3
    return x.split([800, 200])


@pytest.fixture(scope="module")
def fitted(skewed):
    return Flow(hidden=32, epochs=15, lr=3e-3).fit(skewed[0])


def test_the_likelihood_is_that_of_the_change_of_variables(fitted, skewed):
    x = skewed[1].double()[:20]
    z = fitted.transform(x).numpy()
    step = 1e-6
    for i, row in enumerate(x):
        ends = [fitted.transform(row + sign * step * torch.eye(6).double()) for sign in (1, -1)]
        jacobian = ((ends[0] - ends[1]) / (2 * step)).numpy()
        expected = norm.logpdf(z[i]).sum() + np.linalg.slogdet(jacobian).logabsdet
        assert fitted.log_likelihood(row[None]).item() == pytest.approx(expected, abs=1e-4)


def test_fitting_raises_the_likelihood_of_embeddings_seen_and_held_out(fitted, skewed):
    seen, held_out = skewed
    assert len(fitted.history) == 16 and fitted.history[-1] > max(fitted.history[:-3])
    assert fitted.history[-1] == pytest.approx(fitted.log_likelihood(seen).mean().item(), abs=1e-3)
    independent = norm.logpdf(held_out.double(), seen.double().mean(dim=0), seen.double().std(dim=0)).sum(axis=1).mean()
    assert fitted.log_likelihood(held_out).mean() > independent + 1


def test_the_fit_starts_from_the_gaussian_with_independent_dimensions(fitted, skewed):
    x = skewed[0].double()
    assert fitted.history[0] == pytest.approx(norm.logpdf(x, x.mean(dim=0), x.std(dim=0)).sum(axis=1).mean(), abs=1e-3)


def test_the_fitted_embeddings_become_more_gaussian(fitted, skewed):
    x = skewed[0]

    def off_diagonal(vectors):
        return (vectors.T.corrcoef() - torch.eye(6)).abs().mean()

    assert off_diagonal(fitted.transform(x)) < 0.5 * off_diagonal(x)


def test_the_inverse_gives_the_embeddings_back(fitted, skewed):
    for x in skewed:
        torch.testing.assert_close(fitted.inverse(fitted.transform(x)), x, atol=1e-4, rtol=0)
    far = skewed[0].mean(dim=0) + 10 * skewed[0].std(dim=0) * torch.randn(50, 6)
    torch.testing.assert_close(fitted.inverse(fitted.transform(far)), far, atol=1e-4, rtol=1e-4)


def test_the_inverse_holds_on_wide_embeddings():
    x = torch.randn(300, 384) @ torch.randn(384, 384) / 20
    flow = Flow(lr=1e-3).fit(x)
    torch.testing.assert_close(flow.inverse(flow.transform(x)), x, atol=1e-4, rtol=0)


def test_a_seed_gives_one_flow_and_keeps_the_global_random_state(skewed):
    x = skewed[0]
    state = torch.get_rng_state()
    first, second, other = (Flow(hidden=8, epochs=1, seed=seed).fit(x).transform(x) for seed in (0, 0, 1))
    assert torch.equal(first, second) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_fitting_works_where_gradients_are_off(skewed):
    with torch.no_grad():
        history = Flow(hidden=8, epochs=1).fit(skewed[0]).history
    assert history[-1] > history[0]


@pytest.mark.parametrize("n", [2, 3, 65])
def test_few_and_odd_numbers_of_rows(n):
    x = torch.randn(n, 5)
    flow = Flow(hidden=8).fit(x)
    assert flow.history[-1] > flow.history[0]
    torch.testing.assert_close(flow.inverse(flow.transform(x)), x, atol=1e-4, rtol=0)


def test_constant_dimensions_are_not_scaled():
    x = torch.randn(200, 5)
    x[:, 1], x[:, 4] = 0.3, 0
    flow = Flow(hidden=8).fit(x)
    z = flow.transform(x)
    assert torch.isfinite(z).all() and math.isfinite(flow.history[-1])
    torch.testing.assert_close(flow.inverse(z), x, atol=1e-4, rtol=0)


def test_inverse_and_likelihood_check_their_input(fitted):
    for method in (fitted.inverse, fitted.log_likelihood):
        with pytest.raises(UserError, match="fitted on 6 dimensions, but the embeddings have 5"):
            method(torch.randn(3, 5))
        assert len(method(torch.empty(0, 6))) == 0
    for method in (Flow().inverse, Flow().log_likelihood):
        with pytest.raises(UserError, match="flow: fit it on embeddings first"):
            method(torch.randn(3, 5))


@pytest.mark.parametrize(("option", "value"), [("hidden", 0), ("epochs", -1), ("lr", 0.0), ("lr", math.nan)])
def test_options_out_of_range_are_errors(option, value):
    with pytest.raises(UserError, match=f"postprocess.{option}={value}: it must be"):
        Flow(**{option: value})


def test_a_diverging_likelihood_is_an_error(skewed):
    with pytest.raises(UserError, match="postprocess.lr=1e\\+30: the likelihood of the flow diverged"):
        Flow(hidden=8, lr=1e30).fit(skewed[0])


def test_one_dimension_is_an_error():
    with pytest.raises(UserError, match="a coupling needs two dimensions"):
        Flow().fit(torch.randn(30, 1))
