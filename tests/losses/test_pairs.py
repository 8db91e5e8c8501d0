"""Labels of pairs that a loss is not defined for."""

import pytest
import torch

from simcse_pl.losses.scored_pairs import CosineMSELoss
from simcse_pl.losses.softmax import SoftmaxLoss
from simcse_pl.utils.errors import UserError


@pytest.mark.parametrize(
    ("loss", "labels", "message"),
    [
        (SoftmaxLoss(3), [0, 3], "classes=3: the rows have labels 0 to 3"),
        (SoftmaxLoss(3), [-1, 0], "the rows have labels -1 to 0"),
        (CosineMSELoss(), [0.0, 1.5], "max_score=1: the rows have scores 0 to 1.5"),
        (CosineMSELoss(), [0.0, -1.5], "the rows have scores -1.5 to 0"),
    ],
)
def test_labels_out_of_range_are_errors(loss, labels, message):
    with pytest.raises(UserError, match=message):
        loss(*torch.randn(2, 2, 6), labels=torch.tensor(labels))
