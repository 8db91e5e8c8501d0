"""Contrastive batches: their order, the parts of the ranks, and resuming an epoch."""

import subprocess
import sys

import pytest

from simcse_pl.data.sampler import ContrastiveBatchSampler
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT

ROWS = [(f"sentence {i}",) for i in range(10)]


@pytest.mark.parametrize("rows", [9, 10, 11, 23])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_share_the_batches_of_one_device(rows, ranks):
    """Parts are contiguous and even; a last batch with fewer rows than ranks joins the one before."""
    whole = list(ContrastiveBatchSampler(rows, 5, seed=3))
    if len(whole) > 1 and len(whole[-1]) < ranks:
        last = whole.pop()
        whole[-1] = whole[-1] + last
    shares = [list(ContrastiveBatchSampler(rows, 5, ranks, rank, seed=3)) for rank in range(ranks)]
    assert {len(share) for share in shares} == {len(whole)}
    for batch, *parts in zip(whole, *shares, strict=True):
        assert [key for part in parts for key in part] == batch
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1


@pytest.mark.parametrize(
    ("rows", "batch_size", "message"),
    [(10, 3, "data.batch_size is 3"), (3, 8, "the number of rows to train on is 3")],
)
def test_fewer_rows_than_ranks_are_an_error(rows, batch_size, message):
    with pytest.raises(UserError, match=f"{message}: it must be at least 4, one row for each device"):
        ContrastiveBatchSampler(rows, batch_size, ranks=4)


def test_keys_have_the_epoch_in_which_the_iterator_started():
    batches = ContrastiveBatchSampler(10, 4)
    drawn = iter(batches)
    next(drawn)
    batches.set_epoch(1)
    assert {epoch for batch in drawn for epoch, _ in batch} == {0}


def test_only_the_interrupted_epoch_starts_later():
    batches = ContrastiveBatchSampler(10, 4)
    whole = {}
    for epoch in range(3):
        batches.set_epoch(epoch)
        whole[epoch] = list(batches)
    batches.resume(epoch=1, batch=2)
    for epoch in range(3):
        batches.set_epoch(epoch)
        assert list(batches) == (whole[1][2:] if epoch == 1 else whole[epoch])
    assert len(batches) == 3


def test_a_process_ends_if_an_error_keeps_its_workers_alive():
    code = """
import sys
from simcse_pl.data.sampler import ContrastiveDataLoader
class Rows:
    def __getitem__(self, keys):
        return keys
loader = ContrastiveDataLoader(Rows(), [[0], [1], [2]], list, num_workers=2)
batches = iter(loader)
print(next(batches))
sys.exit(143)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (143, "[0]\n", "")
