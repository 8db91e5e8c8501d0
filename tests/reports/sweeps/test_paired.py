"""Differences from SimCSE, against scipy's paired t-test."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from simcse_pl.reports.sweeps.paired import (
    CONFIDENCE,
    baseline_of,
    difference,
    published_difference,
    published_of,
    reach,
)
from tests.reports.conftest import of_seeds

SIMCSE = [0.835, 0.841, 0.838, 0.829]
OTHERS = {"esimcse": [0.840, 0.848, 0.839, 0.837], "mixcse": [0.836, 0.839, 0.841, 0.828]}


def by_name(groups, name):
    (found,) = (own for own in groups.groups if own.label == name)
    return found


def test_the_interval_is_that_of_the_paired_t_test(compare):
    found = compare(*of_seeds({"simcse": SIMCSE, **OTHERS}))
    for name, scores in OTHERS.items():
        ours = difference(found, by_name(found, name), "dev")
        test = ttest_rel(100 * np.array(scores), 100 * np.array(SIMCSE))
        low, high = test.confidence_interval(CONFIDENCE)
        assert ours.count == 4
        assert [ours.mean - ours.margin, ours.mean + ours.margin] == pytest.approx([low, high], rel=1e-12)
        assert (abs(ours.mean) > ours.margin) == (test.pvalue < 1 - CONFIDENCE) == (name == "esimcse")


def test_one_gain_in_40_without_any_effect_is_beyond_its_interval():
    """The note below the table and docs/methods.md say so."""
    differences = np.random.default_rng(0).normal(size=(100_000, 3))
    low = differences.mean(axis=1) - reach(3) * differences.std(axis=1, ddof=1)
    assert (low > 0).mean() == pytest.approx(1 / 40, abs=0.002)


def test_only_seeds_of_both_are_paired_and_a_seed_that_ran_twice_counts_once(compare):
    found = compare(
        ("simcse", 0.80, 1),
        ("simcse", 0.90, 2),
        ("simcse", math.nan, 3),
        ("esimcse", 0.81, 2),
        ("esimcse", 0.83, 2),
        ("esimcse", 0.85, 1),
        ("esimcse", 0.99, 3),
        ("esimcse", 0.99, 7),
    )
    ours = difference(found, by_name(found, "esimcse"), "dev")
    assert ours.by_seed.to_dict() == pytest.approx({"1": 5, "2": -8})


def test_a_method_is_compared_in_its_own_setting_and_with_its_other_options(compare):
    supervised = {"setting": "supervised"}
    found = compare(
        ("esimcse", 0.8, 0),
        ("cosent", 0.7, 0, supervised),
        ("sup_simcse", 0.75, 0, supervised),
        ("simcse", 0.78, 0),
    )
    assert [own.label for own in found.groups] == ["simcse", "esimcse", "sup_simcse", "cosent"]
    pairs = {own.label: baseline_of(found, own) for own in found.groups}
    assert {name: other and other.label for name, other in pairs.items()} == {
        "simcse": None,
        "esimcse": "simcse",
        "sup_simcse": None,
        "cosent": "sup_simcse",
    }


def test_other_options_are_those_of_the_baseline(compare):
    jobs = [
        (name, 0.8, 0, {"options": {"model": model}, "choices": {"model": model}})
        for name in ("simcse", "esimcse")
        for model in ("bert", "roberta")
    ]
    found = compare(*jobs)
    assert baseline_of(found, by_name(found, "esimcse, model=roberta")).label == "simcse, model=roberta"
    gains = {own.label: published_difference(own) for own in found.groups}
    assert gains["esimcse, model=bert"] == pytest.approx(78.27 - 76.25)
    assert gains["esimcse, model=roberta"] == pytest.approx(77.44 - 76.57)
    assert math.isnan(gains["simcse, model=bert"])


def test_without_simcse_and_without_published_scores_there_is_no_difference(compare):
    found = compare(("esimcse", 0.8, 0), ("mine", 0.8, 0))
    assert [difference(found, own, "dev").count for own in found.groups] == [0, 0]
    assert published_of(by_name(found, "mine")) is None
    assert math.isnan(published_difference(by_name(found, "mine")))
