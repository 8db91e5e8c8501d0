"""Unit vectors against the definition."""

import pytest
import torch

from simcse_pl.utils.tensors import evaluation_mode, unit_vectors


@pytest.mark.parametrize("shape", [(2, 3, 5), (0, 5)])
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_unit_vectors_are_divided_by_their_norm(shape, scale):
    x = torch.randn(shape) * scale
    expected = x.double() / x.double().square().sum(dim=-1, keepdim=True).sqrt()
    torch.testing.assert_close(unit_vectors(x), expected.float())


def test_each_part_of_a_module_returns_to_its_own_mode():
    module = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout().eval())
    with evaluation_mode(module):
        assert not any(part.training for part in module.modules())
    assert [part.training for part in module.modules()] == [True, True, False]


def test_a_module_returns_to_its_mode_when_the_last_thread_leaves_it():
    module = torch.nn.Dropout()
    first, second = evaluation_mode(module), evaluation_mode(module)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not module.training
    second.__exit__(None, None, None)
    assert module.training


def test_zeros_stay_zeros_without_a_gradient():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    unit = unit_vectors(x)
    assert unit.tolist() == [[0, 0], [pytest.approx(0.6), pytest.approx(0.8)]]
    unit.sum().backward()
    assert (x.grad[0] == 0).all()
    torch.autograd.gradcheck(unit_vectors, torch.randn(3, 4, dtype=torch.float64, requires_grad=True))
