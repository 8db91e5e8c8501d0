"""Two processes with half of the batch each, against one with all of it."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from simcse_pl.distributed import gather_rows, rank, world_size
from simcse_pl.objective import ContrastiveObjective

ROWS, VIEWS, DIM = 6, 3, 5


def _inputs():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(ROWS, VIEWS, DIM, generator=generator), torch.randn(DIM, DIM, generator=generator)


def _gradient(inputs, weight, objective):
    weight = weight.clone().requires_grad_()
    loss = objective(inputs @ weight)
    loss.backward()
    return loss.detach(), weight.grad


def _one_rank(number, ranks, store, results):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=ranks)
    inputs, weight = _inputs()
    share = ROWS // ranks
    loss, gradient = _gradient(
        inputs[number * share : (number + 1) * share], weight, ContrastiveObjective(hard_negative_weight=0.7)
    )
    for tensor in (loss, gradient):  # as DDP averages gradients
        dist.all_reduce(tensor)
        tensor /= ranks
    results[number] = (loss, gradient, rank(), world_size())
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_equal_one_big_batch(ranks, tmp_path):
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_one_rank, (ranks, tmp_path / "store", results), nprocs=ranks)
        results = dict(results)
    loss, gradient = _gradient(*_inputs(), ContrastiveObjective(hard_negative_weight=0.7))
    for number in range(ranks):
        torch.testing.assert_close(results[number][0], loss, atol=1e-6, rtol=0)
        torch.testing.assert_close(results[number][1], gradient, atol=1e-6, rtol=1e-5)
        assert results[number][2:] == (number, ranks)


def test_alone_there_is_nothing_to_gather():
    rows = torch.randn(2, 3)
    assert gather_rows(rows) is rows
    assert (rank(), world_size()) == (0, 1)
