"""Labels of pairs that a loss is not defined for."""

import pytest

from simcse_pl.losses.scored_pairs import CosineMSELoss
from simcse_pl.losses.softmax import SoftmaxLoss
from simcse_pl.models.roles import RowKind
from simcse_pl.utils.errors import UserError


@pytest.mark.parametrize(
    ("loss", "labels", "limits", "message"),
    [
        (SoftmaxLoss(3), "classes", (0, 3), "classes=3: the rows have labels 0 to 3"),
        (SoftmaxLoss(3), "classes", (-1, 0), "the rows have labels -1 to 0"),
        (CosineMSELoss(), "scores", (0, 1.5), "max_score=1: the rows have scores 0 to 1.5"),
        (CosineMSELoss(), "scores", (-1.5, 0), "the rows have scores -1.5 to 0"),
    ],
)
def test_labels_out_of_range_are_errors(loss, labels, limits, message):
    with pytest.raises(UserError, match=message):
        loss.check_rows(RowKind(labels=labels, label_range=limits))


def test_the_number_of_classes_is_that_of_the_labels():
    SoftmaxLoss(2).check_rows(RowKind(labels="classes", label_range=(0, 1), classes=2))
    with pytest.raises(UserError, match="classes=3: the rows have labels 0 to 1, .* set it to the number of classes"):
        SoftmaxLoss(3).check_rows(RowKind(labels="classes", label_range=(0, 1), classes=2))
