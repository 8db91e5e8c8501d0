"""Names and scales of metrics in tables."""

import pytest

from simcse_pl.results.metrics import decimals, factor, heading


@pytest.mark.parametrize(
    ("metric", "named", "shown", "digits"),
    [
        ("german/spearman", "german/Spearman ↑", 100, 2),
        ("recall/ndcg@5", "recall/ndcg@5 ↑", 100, 2),
        ("uniformity", "uniformity ↓", 1, 3),
        ("recall/loss", "recall/loss ↓", 1, 3),
        ("uniformity/distance", "uniformity/distance", 1, 3),
    ],
)
def test_correlations_and_shares_are_shown_times_100(metric, named, shown, digits):
    assert (heading(metric, direction=True), factor(metric), decimals(metric)) == (named, shown, digits)
