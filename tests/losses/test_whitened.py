"""The objective of whitened vectors: whitening and loss in plain loops, gradients, and small batches."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from simcse_pl.losses.whitened import WhitenedContrastiveObjective, group_whitening

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.roles import Role
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw
from tests.losses.loops import contrast
from tests.losses.networks import attached

VIEWS = (Role.ANCHOR, Role.POSITIVE, Role.POSITIVE)


def whitened_in_loops(vectors, order, groups):
    """Whiten each group of dimensions with scipy's square root of its covariance."""
    vectors = vectors.numpy()
    result, size = np.zeros_like(vectors), vectors.shape[1] // groups
    for group in range(groups):
        own = order[group * size : (group + 1) * size].tolist()
        mean = sum(vectors[:, own]) / len(vectors)
        covariance = sum(np.outer(row - mean, row - mean) for row in vectors[:, own]) / len(vectors)
        inverse = np.linalg.inv(sqrtm(covariance))
        for i, row in enumerate(vectors[:, own]):
            result[i, own] = inverse @ (row - mean)
    return result


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_whitening_equals_loops(groups):
    vectors, order = torch.randn(9, 6, dtype=torch.float64) @ torch.randn(6, 6).double() + 3, torch.randperm(6)
    found = group_whitening(vectors, order, groups)
    np.testing.assert_allclose(found, whitened_in_loops(vectors, order, groups), atol=1e-9)
    found = group_whitening(vectors.float(), order, groups)
    np.testing.assert_allclose(found, whitened_in_loops(vectors, order, groups), atol=1e-4)
    assert found.dtype == torch.float32


@pytest.mark.parametrize("vectors", [torch.randn(7, 6), torch.cat([torch.eye(6), -torch.eye(6)])])
def test_the_gradient_passes_through_the_covariance(vectors):
    """Also if all its eigenvalues are equal."""
    order = torch.randperm(6)
    assert torch.autograd.gradcheck(lambda x: group_whitening(x, order, 2), vectors.double().requires_grad_())


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64, torch.bfloat16])
def test_fewer_rows_than_dimensions_are_finite_and_0_where_rows_do_not_differ(rows, precision):
    vectors = (torch.randn(rows, 6) * 10 + 5).to(precision).requires_grad_()
    found = group_whitening(vectors, torch.arange(6), 1)
    (found * torch.randn(rows, 6)).sum().backward()
    assert vectors.grad.isfinite().all() and vectors.grad.abs().max() < 100
    covariance = found.double().mT @ found.double() / rows
    values = torch.linalg.eigvalsh(covariance)
    torch.testing.assert_close(values[7 - rows :], torch.ones(rows - 1).double(), atol=1e-3, rtol=0)
    torch.testing.assert_close(values[: 7 - rows], torch.zeros(7 - rows).double(), atol=1e-3, rtol=0)


@pytest.fixture
def encoder(make_model):
    options = {"pooling": "mean", "head": "mlp_train_only", "dropout": 0.0}
    return SentenceEncoder.from_pretrained(make_model("bert", hidden_size=8, num_attention_heads=2), **options).train()


@pytest.mark.parametrize("roles", [VIEWS, (Role.POSITIVE, Role.OTHER, Role.ANCHOR, Role.POSITIVE), VIEWS[:2]])
def test_it_is_the_sum_of_the_losses_of_whitened_and_projected_views(encoder, roles):
    encoder.double()
    pooled = torch.randn(9, len(roles), 8, dtype=torch.float64, requires_grad=True)
    objective = attached(WhitenedContrastiveObjective(groups=2, temperature=0.2), encoder)
    torch.manual_seed(3)
    loss = objective(EmbeddedBatch(torch.zeros(9, len(roles), 8), roles, {}, pooled))
    used = [view for role in (Role.ANCHOR, Role.POSITIVE) for view, own in enumerate(roles) if own is role]
    torch.manual_seed(3)
    orders = torch.rand(len(used), 8).argsort(dim=1)
    linear = encoder.projection[0]
    weight, bias, projected = linear.weight.detach().numpy(), linear.bias.detach().numpy(), []
    for view, order in zip(used, orders, strict=True):
        rows = whitened_in_loops(pooled[:, view].detach(), order, 2)
        projected.append([np.tanh(weight @ row + bias) for row in rows])
    expected = sum(contrast(projected[0], positives, 0.2) for positives in projected[1:])
    assert loss.item() == pytest.approx(expected, rel=1e-9)
    loss.backward()
    assert linear.weight.grad.norm() > 0 and pooled.grad[:, used[0]].norm() > 0

    def again(x):
        torch.manual_seed(3)
        return objective(EmbeddedBatch(torch.zeros(9, len(roles), 8), roles, {}, x))

    assert torch.autograd.gradcheck(again, pooled)


def test_every_step_has_other_groups(encoder):
    pooled = torch.randn(9, 1, 8).expand(-1, 3, -1)
    objective = attached(WhitenedContrastiveObjective(groups=2), encoder)
    batch = EmbeddedBatch(torch.zeros(9, 3, 8), VIEWS, {}, pooled)
    assert objective(batch) != objective(batch)


def test_a_queue_is_an_error(encoder):
    objective = attached(WhitenedContrastiveObjective(groups=2), encoder)
    module = SimCSEModule(encoder, objective, adamw(), queue=MomentumQueue(size=2))
    rows = ViewCollator(encoder.tokenizer, 16)([(s, s) for s in SENTENCES])
    with pytest.raises(UserError, match="^objective=whitened: the embeddings of a queue are not whitened: set queue="):
        module.loss(rows)
