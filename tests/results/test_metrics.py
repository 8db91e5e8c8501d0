"""Names and scales of metrics in tables."""

import pytest

from simcse_pl.results.metrics import decimals, factor, heading, lower_is_better


@pytest.mark.parametrize(
    ("metric", "named", "shown", "digits"),
    [
        ("spearman", "Spearman ↑", 100, 2),
        ("german/spearman", "german/Spearman ↑", 100, 2),
        ("recall@10", "recall@10 ↑", 100, 2),
        ("recall/ndcg@5", "recall/ndcg@5 ↑", 100, 2),
        ("uniformity", "uniformity ↓", 1, 3),
        ("recall/loss", "recall/loss ↓", 1, 3),
    ],
)
def test_correlations_and_shares_are_shown_times_100(metric, named, shown, digits):
    assert (heading(metric, direction=True), factor(metric), decimals(metric)) == (named, shown, digits)


def test_alignment_and_uniformity_are_better_when_low():
    assert lower_is_better("val/uniformity") and lower_is_better("val/de/alignment")
    assert not lower_is_better("val/spearman") and not lower_is_better("uniformity/distance")
