"""The metrics in parts against the functions over the whole."""

import pytest
import torch

from simcse_pl.evaluation.metrics import alignment, uniformity
from simcse_pl.training.validation_metrics import Alignment, SpearmanCorrelation, Uniformity


def test_a_similarity_that_is_no_number_leaves_no_correlation():
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


def test_the_metrics_of_two_ranks_make_that_of_the_whole():
    x, y = torch.randn(2, 10, 6)
    for metric, filled in ((Alignment, (x, y)), (Uniformity, (x,))):
        first, second, whole = metric(), metric(), metric()
        first.update(*(part[:3] for part in filled))
        second.update(*(part[3:] for part in filled))
        whole.update(*filled)
        first.merge_state(second)
        torch.testing.assert_close(first.compute(), whole.compute())


def test_pairs_are_counted_beyond_float32s_whole_numbers():
    aligned = Alignment()
    assert aligned.pairs.dtype == torch.int64 and aligned.pairs == 0


def test_a_metric_filled_in_inference_mode_can_be_filled_again_outside():
    aligned = Alignment()
    with torch.inference_mode():
        aligned.update(*torch.randn(2, 3, 4))
    aligned.update(*torch.randn(2, 3, 4))
    assert aligned.pairs == 6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rows_of_zeros_and_equal_rows_leave_finite_measures(dtype):
    for x in (torch.zeros(4, 6, dtype=dtype), torch.full((4, 6), 6e4, dtype=dtype)):
        aligned, uniform = Alignment(), Uniformity()
        aligned.update(x, x)
        uniform.update(x)
        assert aligned.compute() == 0 and uniform.compute().item() == pytest.approx(0, abs=1e-6)


def test_similarities_that_are_all_equal_have_correlation_0():
    metric = SpearmanCorrelation()
    metric.update(torch.full((5,), 0.3), torch.arange(5.0))
    assert metric.compute() == 0


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric Alignment was called before")
def test_before_the_first_pair_there_is_no_number():
    assert Alignment().compute().isnan()
