"""The projection head with batch normalization: its formula, precision, and saved encoders."""

import pytest
import torch

from simcse_pl.models.heads import BatchNormHead
from tests.losses.loops import similarity, standardized


def normalized(rows):
    return list(zip(*map(standardized, zip(*rows, strict=True)), strict=True))


def product(rows, weight):
    return [[similarity(row, own, "dot") for own in weight.tolist()] for row in rows]


def test_it_is_linear_norm_relu_linear_norm_over_all_rows_and_views():
    head = BatchNormHead(3, 1.0).double()
    with torch.no_grad():
        head[1].weight.uniform_(0.5, 2.0)
        head[1].bias.uniform_(-1.0, 1.0)
    assert head[0].weight.shape == (6, 3) and head[3].weight.shape == (3, 6)
    vectors = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    hidden = normalized(product(vectors.flatten(0, 1).tolist(), head[0].weight))
    scale, shift = head[1].weight.tolist(), head[1].bias.tolist()
    hidden = [[max(0.0, x * s + b) for x, s, b in zip(row, scale, shift, strict=True)] for row in hidden]
    expected = torch.tensor(normalized(product(hidden, head[3].weight))).view(4, 2, 3)
    torch.testing.assert_close(head(vectors), expected.double())
    assert torch.autograd.gradcheck(head, vectors)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_autocast_leaves_it_in_float32(precision):
    head, vectors = BatchNormHead(4, 1.0), torch.randn(3, 2, 4)
    with torch.autocast("cpu", precision):
        found = head(vectors)
    assert found.dtype == torch.float32 and torch.equal(found, head(vectors))
