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


@pytest.mark.parametrize(("metric", "function", "inputs"), [(Alignment, alignment, 2), (Uniformity, uniformity, 1)])
def test_metrics_of_batches_and_ranks_equal_those_of_all_data(metric, function, inputs):
    filled = torch.randn(inputs, 10, 6)
    first, second = metric(), metric()
    first.update(*filled[:, :3])
    first.update(*filled[:, 3:3])
    second.update(*filled[:, 3:])
    first.merge_state(second)
    torch.testing.assert_close(first.compute(), function(*filled))


def test_without_pairs_alignment_is_nan():
    metric = Alignment()
    metric.update(*torch.ones(2, 0, 3))
    assert metric.compute().isnan()
