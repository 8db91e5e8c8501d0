"""The head of DiffCSE and InfoCSE; tests/utils/test_distributed.py has it on several devices."""

import pytest
import torch

from simcse_pl.methods.batch_norm_head import BatchNormHead


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_autocast_leaves_batch_normalization_in_float32(precision):
    head, vectors = BatchNormHead(4, 1.0), torch.randn(3, 2, 4)
    with torch.autocast("cpu", precision):
        found = head(vectors)
    assert found.dtype == torch.float32 and torch.equal(found, head(vectors))
    assert not head(vectors[:1, :1]).any(), "one vector is its own mean"
