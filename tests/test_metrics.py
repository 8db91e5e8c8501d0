"""Alignment and uniformity against torch.pdist and the formulas of Wang and Isola."""

import pytest
import torch
import torch.nn.functional as F

from simcse_pl import metrics
from simcse_pl.metrics import Alignment, Uniformity, alignment, uniformity


def test_alignment_is_the_mean_squared_distance_on_the_sphere():
    x, y = torch.randn(2, 9, 6) * 5
    expected = (F.normalize(x) - F.normalize(y)).norm(dim=1).pow(2).mean()
    torch.testing.assert_close(alignment(x, y), expected)


@pytest.mark.parametrize("rows_at_a_time", [1, 4, 2048])
def test_uniformity_is_over_all_pairs(rows_at_a_time, monkeypatch):
    monkeypatch.setattr(metrics, "_ROWS_AT_A_TIME", rows_at_a_time)
    x = torch.randn(11, 6) * 5
    expected = torch.pdist(F.normalize(x)).pow(2).mul(-2).exp().mean().log()
    torch.testing.assert_close(uniformity(x), expected)


def test_what_is_known_without_computing():
    x = torch.randn(5, 6)
    assert alignment(x, x).item() == 0
    assert uniformity(x[:1].expand(4, 6)).item() == pytest.approx(0, abs=1e-6)
    assert alignment(x, -x).item() == pytest.approx(4)
    assert uniformity(torch.stack([x[0], -x[0]])).item() == pytest.approx(-8)


def test_too_few_rows_give_no_number():
    assert uniformity(torch.randn(1, 3)).isnan()
    assert alignment(torch.empty(0, 3), torch.empty(0, 3)).isnan()


def test_metrics_in_uneven_parts_equal_the_whole():
    x, y = torch.randn(2, 10, 6)
    aligned, uniform = Alignment(), Uniformity()
    for part in (slice(0, 3), slice(3, 3), slice(3, 10)):
        aligned.update(x[part], y[part])
        uniform.update(x[part])
    torch.testing.assert_close(aligned.compute(), alignment(x, y))
    torch.testing.assert_close(uniform.compute(), uniformity(x))


def test_a_metric_filled_in_inference_mode_can_be_filled_again_outside():
    aligned = Alignment()
    with torch.inference_mode():
        aligned.update(*torch.randn(2, 3, 4))
    aligned.update(*torch.randn(2, 3, 4))
    assert aligned.pairs == 6
