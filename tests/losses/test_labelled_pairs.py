"""Labels of pairs that a loss is not defined for."""

import pytest

from simcse_pl.losses.labelled_pairs import CosineMSELoss, SoftmaxLoss
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import RowKind


@pytest.mark.parametrize(
    ("loss", "labels", "limits", "classes", "message"),
    [
        (SoftmaxLoss(3), "classes", (0, 3), None, "classes=3: the rows have labels 0 to 3"),
        (SoftmaxLoss(3), "classes", (-1, 0), None, "the rows have labels -1 to 0"),
        (SoftmaxLoss(3), "classes", (0, 1), 2, "the rows have labels 0 to 1, .* set it to the number of classes"),
        (CosineMSELoss(), "scores", (0, 1.5), None, "max_score=1: the rows have scores 0 to 1.5"),
        (CosineMSELoss(), "scores", (-1.5, 0), None, "the rows have scores -1.5 to 0"),
    ],
)
def test_labels_out_of_range_are_errors(loss, labels, limits, classes, message):
    with pytest.raises(UserError, match=message):
        loss.check_rows(RowKind(labels=labels, label_range=limits, classes=classes))
