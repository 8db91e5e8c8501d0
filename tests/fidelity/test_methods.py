"""Each method computes what its official code computed of the same weights and sentences, in float64."""

import pytest
import torch

from benchmarks.fidelity.compare import RECORDS, differences


@pytest.mark.parametrize("name", RECORDS)
def test_the_loss_and_its_gradients(name):
    compared = differences(name)
    official, here = compared.pop("tokens")
    assert torch.equal(official, here)
    torch.testing.assert_close(*reversed(compared.pop("loss")), rtol=1e-10, atol=1e-10)
    for weight, (official, here) in compared.items():
        torch.testing.assert_close(here, official, rtol=1e-9, atol=1e-9, msg=lambda text, at=weight: f"{at}: {text}")
