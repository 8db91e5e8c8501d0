"""Orders of rows and contrastive batches: their randomness, the parts of the ranks, and resuming an epoch."""

import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from typing import get_args

import numpy as np
import pytest

from simcse_pl.data import sampler
from simcse_pl.data.orders import permuted
from simcse_pl.data.sampler import ContrastiveBatches, MixedBatchSampler, Sampling, sample
from tests.conftest import ROOT


@pytest.mark.parametrize("count", [1, 2, 5, 1000, 1024, 1025])
def test_each_row_is_at_one_place_whatever_is_asked_for(count):
    order = permuted(0, count, count, 3).tolist()
    assert sorted(order) == list(range(count))
    assert [permuted(place, place + 1, count, 3).item() for place in range(min(count, 20))] == order[:20]


def test_over_seeds_each_row_is_at_each_place_equally_often():
    orders = np.array([permuted(0, 5, 5, seed) for seed in range(4000)])
    at_place = np.array([[(orders[:, place] == row).sum() for row in range(5)] for place in range(5)])
    assert np.abs(at_place - 800).max() < 5 * np.sqrt(4000 * 0.2 * 0.8)


def test_the_order_of_many_rows_has_no_drift_and_another_one_in_each_epoch():
    count, middle, drawn = 10**8, 5 * 10**7, 20_000
    first, second = (permuted(middle, middle + drawn, count, seed) for seed in (42, 43))
    for rows in (first, second):
        assert len(set(rows.tolist())) == drawn and rows.min() >= 0 and rows.max() < count
        assert abs(rows.mean() / count - 0.5) < 5 * np.sqrt(1 / 12 / drawn)
        assert abs(np.corrcoef(rows[1:], rows[:-1])[0, 1]) < 5 / np.sqrt(drawn)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(drawn)


@pytest.mark.parametrize("listed", [2**24, 10])
def test_a_sample_is_sorted_and_of_few_rows_that_of_random(monkeypatch, listed):
    monkeypatch.setattr(sampler, "LISTED", listed)
    rows = sample(1000, 400, "7-x").tolist()
    assert sorted(set(rows)) == rows and len(rows) == 400 and rows[-1] < 1000
    assert (rows == sorted(random.Random("7-x").sample(range(1000), 400))) == (listed > 10)


@pytest.mark.parametrize("order", ["listed", "permuted", "grouped"])
@pytest.mark.parametrize("rows", [9, 10, 11, 23])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_share_the_batches_of_one_device_and_a_resumed_epoch_continues(monkeypatch, rows, ranks, order):
    """Parts are contiguous and even; a last batch with fewer rows than ranks joins the one before."""
    monkeypatch.setattr(sampler, "LISTED", 0 if order == "permuted" else 2**24)
    groups = np.arange(rows) % 3 if order == "grouped" else None
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


def test_a_process_ends_if_an_error_keeps_its_workers_alive():
    code = """
import sys
from simcse_pl.data.sampler import Batches, ContrastiveDataLoader, loader_options
keys = [("", [0], ()), ("", [1], ()), ("", [2], ())]
loader = ContrastiveDataLoader(Batches({"": dict.fromkeys}), sampler=keys, **loader_options(2, False))
batches = iter(loader)
print(next(batches))
sys.exit(143)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (143, "{0: None, 'counts': ()}\n", "")


@pytest.mark.parametrize("where", ["this process", "a child"])
def test_only_the_workers_of_a_loader_are_killed(where, tmp_path):
    code = f"""
import multiprocessing, pathlib, sys, time
from simcse_pl.data.sampler import Batches, ContrastiveDataLoader, loader_options

def write_later():
    time.sleep(2)
    pathlib.Path("written").touch()

def fail():
    keys = [("", [0], ()), ("", [1], ()), ("", [2], ())]
    loader = ContrastiveDataLoader(Batches({{"": dict.fromkeys}}), sampler=keys, **loader_options(2, False))
    global batches  # which multiprocessing would wait for
    batches = iter(loader)
    next(batches)
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
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (143, "")
    assert (tmp_path / "written").exists()
