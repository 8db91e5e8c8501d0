"""Orders and choices of rows that are computed place by place."""

import random

import numpy as np
import pytest

from simcse_pl.data import row_order
from simcse_pl.data.row_order import AllBut, RowOrder, permuted, sample
from simcse_pl.data.sampler import ContrastiveBatches


@pytest.mark.parametrize("count", [1, 2, 5, 1000, 1024, 1025])
def test_each_row_is_at_one_place_whatever_is_asked_for(count):
    places = np.arange(count)
    order = permuted(places, count, 3)
    assert sorted(order.tolist()) == places.tolist()
    assert [int(permuted(np.array([place]), count, 3)[0]) for place in places[:20]] == order[:20].tolist()


def test_over_seeds_each_row_is_at_each_place_equally_often_and_neighbours_are_independent():
    orders = np.array([permuted(np.arange(5), 5, seed) for seed in range(4000)])
    at_place = np.array([[(orders[:, place] == row).sum() for row in range(5)] for place in range(5)])
    after = np.array(
        [[((orders[:, 0] == a) & (orders[:, 1] == b)).sum() for b in range(5) if b != a] for a in range(5)]
    )
    assert np.abs(at_place - 800).max() < 5 * np.sqrt(4000 * 0.2 * 0.8)
    assert np.abs(after - 200).max() < 5 * np.sqrt(4000 * 0.05 * 0.95)


def test_the_order_of_many_rows_has_no_drift_and_another_one_in_each_epoch():
    count, places = 10**8, np.arange(5 * 10**7, 5 * 10**7 + 20_000)
    first, second = (permuted(places, count, seed) for seed in (42, 43))
    for rows in (first, second):
        assert len(set(rows.tolist())) == len(rows) and rows.min() >= 0 and rows.max() < count
        assert abs(rows.mean() / count - 0.5) < 5 * np.sqrt(1 / 12 / len(rows))
        assert abs(np.corrcoef(rows[1:], rows[:-1])[0, 1]) < 5 / np.sqrt(len(rows))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(len(places))


@pytest.mark.parametrize("listed", [2**24, 10])
def test_ranks_share_each_batch_and_a_resumed_epoch_continues(monkeypatch, listed):
    monkeypatch.setattr(row_order, "_LISTED", listed)
    whole = [rows for rows, _ in ContrastiveBatches(100, 7, seed=5).draw(2)]
    assert sorted(row for rows in whole for row in rows) == list(range(100))
    ranks = [ContrastiveBatches(100, 7, 2, rank, seed=5) for rank in range(2)]
    assert [a + b for (a, _), (b, _) in zip(*(share.draw(2) for share in ranks), strict=True)] == whole
    assert [rows for rows, _ in ContrastiveBatches(100, 7, seed=5).draw(2, start=9)] == whole[9:]
    assert len(RowOrder(100, 3)[20:30]) == 10


@pytest.mark.parametrize("listed", [2**24, 10])
def test_a_sample_is_sorted_and_of_few_rows_that_of_random(monkeypatch, listed):
    monkeypatch.setattr(row_order, "_LISTED", listed)
    rows = sample(1000, 400, "7-x").tolist()
    assert sorted(set(rows)) == rows and len(rows) == 400 and rows[-1] < 1000
    assert (rows == sorted(random.Random("7-x").sample(range(1000), 400))) == (listed > 10)


def test_all_but_some_numbers_against_a_list():
    for left_out in ([0], [9], [0, 1, 5, 9], [3, 4]):
        numbers, expected = AllBut(10, np.array(left_out)), [n for n in range(10) if n not in left_out]
        assert list(numbers) == expected == [int(numbers[place]) for place in range(len(numbers))]
        assert numbers[1:4].tolist() == expected[1:4] and numbers[-1] == expected[-1]
        assert np.asarray(numbers).tolist() == expected and numbers.index(expected[2]) == 2
