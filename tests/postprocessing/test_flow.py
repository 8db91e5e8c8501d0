"""The start and the random numbers of the flow; tests/fidelity has the official values."""

import pytest
import torch

from simcse_pl.postprocessing.flow import Flow, Glow
from simcse_pl.postprocessing.post_process import load
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import read_json, write_json


@pytest.fixture(scope="module")
def skewed():
    """Correlated, skewed, of different sizes, and far from 0: [800, 7]."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(800, 7, generator=generator) @ torch.randn(7, 7, generator=generator)
    x[:, ::2] = torch.exp(0.4 * x[:, ::2])
    return x * torch.logspace(-1, 1, 7) + 3


def test_a_standardized_start_suits_any_size_and_constant_dimensions(skewed):
    x = torch.cat([100 * skewed, torch.full((800, 1), 0.3), 1e-33 * skewed[:, :1]], dim=1)
    z = Flow(standardize=True, batch_size=800, lr=1e-12).fit(x).transform(x)
    torch.testing.assert_close(z.mean(dim=0), torch.zeros(9), rtol=0, atol=1e-3)
    assert sorted(z.std(dim=0, correction=0).tolist()) == pytest.approx([0, 0, *[1] * 7], abs=1e-3)


def test_a_seed_gives_one_flow_and_keeps_the_global_random_state(skewed):
    state = torch.get_rng_state()
    with torch.no_grad():  # which must not switch off the fit
        first, second, other = (Flow(seed=seed).fit(skewed) for seed in (0, 0, 1))
    torch.manual_seed(0)
    assert first._glow(skewed.double())[1].mean() > Glow(7)(skewed)[1].mean()  # the likelihood
    torch.set_rng_state(state)
    assert torch.equal(first.transform(skewed), second.transform(skewed))
    assert not torch.equal(first.transform(skewed), other.transform(skewed))


def test_the_flow_of_an_earlier_version_is_an_error(skewed, tmp_path):
    Flow().fit(skewed).save(tmp_path)
    settings = read_json(tmp_path / "postprocess.json")
    write_json(tmp_path / "postprocess.json", settings | {"options": {"transforms": 4, "hidden": 256}})
    with pytest.raises(UserError, match="of another version; fit it again: .*'transforms'"):
        load(tmp_path)
