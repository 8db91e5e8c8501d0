"""RankCSE at its limits, and its teachers."""

import pytest
import torch

from simcse_pl.methods.rankcse import RankingConsistency, RankingDistillation, list_mle, list_net


@pytest.mark.parametrize("loss", [list_net, list_mle])
def test_one_row_has_the_loss_0_and_large_scores_are_finite(loss):
    one = torch.zeros(1, 1, requires_grad=True)
    value = loss(one, torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))
    value.backward()
    assert value.item() == 0 and one.grad.item() == 0
    scores = torch.tensor([[1000.0, 0.0, -1000.0]], requires_grad=True)
    value = loss(scores, -scores.detach(), torch.tensor([1]))
    value.backward()
    assert value.isfinite() and scores.grad.isfinite().all()


def test_equal_views_rank_alike_and_two_teachers_share(teacher):
    views = torch.randn(4, 6).double()
    assert RankingConsistency()(views, views).item() == pytest.approx(0, abs=1e-12)
    loss = RankingDistillation([str(teacher)] * 2, alpha=0.25)
    assert loss.shares == [0.25, 0.75] and not loss.state_dict() and not list(loss.parameters())
