"""Orders and choices of rows that are computed place by place."""

import random

import numpy as np
import pytest

from simcse_pl.data import sampler
from simcse_pl.data.sampler import ContrastiveBatches, permuted, sample


@pytest.mark.parametrize("count", [1, 2, 5, 1000, 1024, 1025])
def test_each_row_is_at_one_place_whatever_is_asked_for(count):
    order = permuted(0, count, count, 3).tolist()
    assert sorted(order) == list(range(count))
    assert [permuted(place, place + 1, count, 3).item() for place in range(min(count, 20))] == order[:20]


def test_over_seeds_each_row_is_at_each_place_equally_often_and_neighbours_are_independent():
    orders = np.array([permuted(0, 5, 5, seed) for seed in range(4000)])
    at_place = np.array([[(orders[:, place] == row).sum() for row in range(5)] for place in range(5)])
    after = np.array(
        [[((orders[:, 0] == a) & (orders[:, 1] == b)).sum() for b in range(5) if b != a] for a in range(5)]
    )
    assert np.abs(at_place - 800).max() < 5 * np.sqrt(4000 * 0.2 * 0.8)
    assert np.abs(after - 200).max() < 5 * np.sqrt(4000 * 0.05 * 0.95)


def test_the_order_of_many_rows_has_no_drift_and_another_one_in_each_epoch():
    count, middle, drawn = 10**8, 5 * 10**7, 20_000
    first, second = (permuted(middle, middle + drawn, count, seed) for seed in (42, 43))
    for rows in (first, second):
        assert len(set(rows.tolist())) == drawn and rows.min() >= 0 and rows.max() < count
        assert abs(rows.mean() / count - 0.5) < 5 * np.sqrt(1 / 12 / drawn)
        assert abs(np.corrcoef(rows[1:], rows[:-1])[0, 1]) < 5 / np.sqrt(drawn)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(drawn)


@pytest.mark.parametrize("listed", [2**24, 10])
def test_ranks_share_each_batch_and_a_resumed_epoch_continues(monkeypatch, listed):
    monkeypatch.setattr(sampler, "LISTED", listed)
    whole = [rows for rows, _ in ContrastiveBatches(100, 7, seed=5).draw(2)]
    assert sorted(row for rows in whole for row in rows) == list(range(100))
    ranks = [ContrastiveBatches(100, 7, 2, rank, seed=5) for rank in range(2)]
    assert [a + b for (a, _), (b, _) in zip(*(share.draw(2) for share in ranks), strict=True)] == whole
    assert [rows for rows, _ in ContrastiveBatches(100, 7, seed=5).draw(2, start=9)] == whole[9:]


@pytest.mark.parametrize("listed", [2**24, 10])
def test_a_sample_is_sorted_and_of_few_rows_that_of_random(monkeypatch, listed):
    monkeypatch.setattr(sampler, "LISTED", listed)
    rows = sample(1000, 400, "7-x").tolist()
    assert sorted(set(rows)) == rows and len(rows) == 400 and rows[-1] < 1000
    assert (rows == sorted(random.Random("7-x").sample(range(1000), 400))) == (listed > 10)
