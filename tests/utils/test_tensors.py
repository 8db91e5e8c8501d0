"""Unit vectors against the definition, and computations on a device without float64."""

import numpy as np
import pytest
import torch

from simcse_pl.evaluation.logistic_regression import fit_predict
from simcse_pl.evaluation.metrics import gram_bound, principal_variances, singular_spectrum
from simcse_pl.evaluation.pytorch_classifier import Problem
from simcse_pl.postprocessing.flow import Flow
from simcse_pl.postprocessing.remove_components import RemoveComponents
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.tensors import unit_vectors


@pytest.mark.parametrize("shape", [(2, 3, 5), (0, 5)])
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_unit_vectors_are_divided_by_their_norm(shape, scale):
    x = torch.randn(shape) * scale
    expected = x.double() / x.double().square().sum(dim=-1, keepdim=True).sqrt()
    torch.testing.assert_close(unit_vectors(x), expected.float())


def test_zeros_stay_zeros_without_a_gradient():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    unit = unit_vectors(x)
    assert unit.tolist() == [[0, 0], [pytest.approx(0.6), pytest.approx(0.8)]]
    unit.sum().backward()
    assert (x.grad[0] == 0).all()
    torch.autograd.gradcheck(unit_vectors, torch.randn(3, 4, dtype=torch.float64, requires_grad=True))


class WithoutFloat64(torch.Tensor):
    """A tensor on a device without float64, such as Apple's MPS. Plain tensors are on the CPU."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if func is torch.Tensor.cpu:
            return result.as_subclass(torch.Tensor)
        if isinstance(result, cls) and result.dtype == torch.float64:
            raise TypeError("the MPS framework doesn't support float64")
        return result


X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) + 1


@pytest.mark.parametrize(
    "compute",
    [
        singular_spectrum,
        principal_variances,
        lambda x: principal_variances(x[:1]),
        lambda x: torch.tensor([*gram_bound(x).values()]),
        lambda x: Whitening(3).fit(x).transform(x),
        lambda x: RemoveComponents(1).fit(x).transform(x),
        lambda x: Flow(transforms=1, hidden=4, epochs=1).fit(x).transform(x),
        lambda x: torch.tensor(fit_predict(x, torch.arange(40) % 3, [Problem(np.arange(40), None, [1.0])])),
    ],
)
def test_computes_on_a_device_without_float64(compute):
    with pytest.raises(TypeError, match="float64"):
        X.as_subclass(WithoutFloat64).double()
    result = compute(X.as_subclass(WithoutFloat64)).as_subclass(torch.Tensor)
    torch.testing.assert_close(result, compute(X), equal_nan=True)
