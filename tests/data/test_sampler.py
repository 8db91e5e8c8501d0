"""Orders of rows and contrastive batches: their randomness, the parts of the ranks, and resuming an epoch."""

import itertools
from collections import Counter
from typing import get_args

import numpy as np
import pytest

from simcse_pl.data.sampler import ContrastiveBatches, MixedBatchSampler, Sampling


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("rows", [9, 10, 11, 23])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_share_the_batches_of_one_device_and_a_resumed_epoch_continues(rows, ranks, grouped):
    """Parts are contiguous and even; a last batch with fewer rows than ranks joins the one before."""
    groups = np.arange(rows) % 3 if grouped else None
    whole = [batch for batch, _ in ContrastiveBatches(rows, 5, seed=3, groups=groups).draw(2)]
    assert sorted(itertools.chain(*whole)) == list(range(rows))
    assert [batch for batch, _ in ContrastiveBatches(rows, 5, seed=3, groups=groups).draw(2, 1)] == whole[1:]
    if len(whole) > 1 and len(whole[-1]) < ranks:
        last = whole.pop()
        whole[-1] = whole[-1] + last
    shares = [list(ContrastiveBatches(rows, 5, ranks, rank, 3, groups).draw(2)) for rank in range(ranks)]
    assert {len(share) for share in shares} == {len(whole)}
    for batch, *parts in zip(whole, *shares, strict=True):
        assert [key for part, _ in parts for key in part] == batch
        sizes = tuple(len(part) for part, _ in parts)
        assert {counts for _, counts in parts} == {sizes}
        assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1


def test_a_last_batch_of_one_row_joins_the_one_before_unless_all_have_one():
    sizes = {size: [len(rows) for rows, _ in ContrastiveBatches(9, size).draw(0)] for size in (1, 4, 8, 9)}
    assert sizes == {1: [1] * 9, 4: [4, 5], 8: [9], 9: [9]}


def test_no_two_seeds_and_epochs_have_one_order():
    orders = [
        tuple(rows)
        for seed in range(3)
        for epoch in range(3)
        for rows, _ in ContrastiveBatches(9, 9, seed=seed).draw(epoch)
    ]
    assert len({*orders}) == 9


def test_batches_have_rows_of_one_group_as_far_as_there_are_enough():
    groups = np.array([0] * 9 + [1] * 13 + [3] * 3 + [4])
    batches = ContrastiveBatches(26, 4, seed=3, groups=groups[np.random.default_rng(0).permutation(26)])
    epochs = [[rows for rows, _ in batches.draw(epoch)] for epoch in range(20)]
    for epoch in epochs:
        of_one = Counter(batches.groups[rows[0]] for rows in epoch if len({*batches.groups[rows]}) == 1)
        assert (of_one[0], of_one[1]) == (2, 3) and [len(rows) for rows in epoch] == [4] * 6 + [2]
    assert len({str(epoch) for epoch in epochs}) == 20
    places = Counter(
        place for epoch in epochs for place, rows in enumerate(epoch[:6]) if len({*batches.groups[rows]}) > 1
    )
    assert len(places) == 6, "mixed batches are anywhere"


SAMPLING = get_args(Sampling)
SIZES = {"a": (10, 4), "bb": (23, 5), "c": (7, 7)}  # 3, 5 and 1 batches


def mixed(sampling, ranks=1, rank=0):
    sets = {name: ContrastiveBatches(*size, ranks, rank, seed=len(name)) for name, size in SIZES.items()}
    return MixedBatchSampler(sets, sampling, 3)


def drawn(batches, epoch):
    batches.set_epoch(epoch)
    return [(name, rows) for name, rows, _ in batches]


@pytest.mark.parametrize("sampling", SAMPLING)
def test_each_sampling_against_a_loop(sampling):
    batches = mixed(sampling)
    for epoch in range(3):
        alone = {name: [[(epoch, row) for row in rows] for rows, _ in batches.sets[name].draw(epoch)] for name in SIZES}
        names = [name for name, _ in drawn(batches, epoch)]
        short = "".join(name[0] for name in names)
        if sampling == "proportional":
            assert sorted(short) == list("aaabbbbbc") != list(short)
        else:
            assert short == {"concatenated": "aaabbbbbc", "round_robin": "abc"}[sampling]
        expected = [(name, alone[name][names[:place].count(name)]) for place, name in enumerate(names)]
        assert drawn(batches, epoch) == expected
        assert len(batches) == len(names)


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("ranks", [2, 3])
def test_all_ranks_draw_the_same_set_and_share_its_batches(sampling, ranks):
    for epoch in range(2):
        alone = drawn(mixed(sampling), epoch)
        shares = [drawn(mixed(sampling, ranks, rank), epoch) for rank in range(ranks)]
        if ranks == 3 and sampling != "round_robin":  # the last batch of a has two rows, which join the one before
            *_, before, last = [place for place, (name, _) in enumerate(alone) if name == "a"]
            alone[before] = "a", alone[before][1] + alone.pop(last)[1]
        for (name, keys), *parts in zip(alone, *shares, strict=True):
            assert {own for own, _ in parts} == {name}
            assert [key for _, part in parts for key in part] == keys


@pytest.mark.parametrize("where", ["this process", "a child"])
def test_a_process_that_an_error_ends_kills_only_the_workers_of_its_loader(where, run_command, tmp_path):
    code = f"""
import multiprocessing, pathlib, sys, time
from simcse_pl.data.sampler import Batches, ContrastiveDataLoader
from simcse_pl.data.workers import worker_options

def write_later():
    time.sleep(2)
    pathlib.Path({str(tmp_path)!r}, "written").touch()

def fail():
    keys = [("", [0], ()), ("", [1], ()), ("", [2], ())]
    options = {{"sampler": keys, "batch_size": None, "collate_fn": dict}} | worker_options(2)
    loader = ContrastiveDataLoader(Batches({{"": dict.fromkeys}}), **options)
    global batches  # which multiprocessing would wait for
    batches = iter(loader)
    print(next(batches), flush=True)
    sys.exit(143)

multiprocessing.set_start_method("fork")
multiprocessing.Process(target=write_later).start()
if {where == "a child"}:
    child = multiprocessing.Process(target=fail)
    child.start()
    child.join()
    sys.exit(child.exitcode)
fail()
"""
    done = run_command("-c", code, status=143)
    assert (done.stdout, done.stderr) == ("{0: None, 'counts': ()}\n", "")
    assert (tmp_path / "written").exists()
