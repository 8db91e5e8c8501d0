"""Metrics over batches and ranks against the functions of all data."""

import pytest
import torch

from simcse_pl.evaluation.metrics import alignment, uniformity
from simcse_pl.training.validation_metrics import Alignment, SpearmanCorrelation, Uniformity


def test_a_nan_similarity_makes_the_correlation_nan():
    metric = SpearmanCorrelation()
    metric.update(torch.tensor([0.1, 0.9, 0.3]), torch.tensor([1.0, 3.0, 2.0]))
    assert metric.compute() == pytest.approx(1, abs=1e-5)
    metric.update(torch.tensor([torch.nan]), torch.tensor([4.0]))
    assert metric.compute().isnan()


def test_metrics_in_uneven_parts_equal_the_whole():
    x, y = torch.randn(2, 10, 6)
    aligned, uniform = Alignment(), Uniformity()
    for part in (slice(0, 3), slice(3, 3), slice(3, 10)):
        aligned.update(x[part], y[part])
        uniform.update(x[part])
    torch.testing.assert_close(aligned.compute(), alignment(x, y))
    torch.testing.assert_close(uniform.compute(), uniformity(x))


def test_metrics_of_two_ranks_merge_to_that_of_all_data():
    x, y = torch.randn(2, 10, 6)
    for metric, filled in ((Alignment, (x, y)), (Uniformity, (x,))):
        first, second, whole = metric(), metric(), metric()
        first.update(*(part[:3] for part in filled))
        second.update(*(part[3:] for part in filled))
        whole.update(*filled)
        first.merge_state(second)
        torch.testing.assert_close(first.compute(), whole.compute())


def test_a_metric_filled_in_inference_mode_can_be_filled_again_outside():
    aligned = Alignment()
    with torch.inference_mode():
        aligned.update(*torch.randn(2, 3, 4))
    aligned.update(*torch.randn(2, 3, 4))
    assert aligned.pairs == 6


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric Alignment was called before")
def test_without_pairs_alignment_is_nan():
    assert Alignment().compute().isnan()
