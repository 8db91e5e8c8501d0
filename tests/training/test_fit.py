"""The warning at the end of a run. tests/cli/test_train.py has the rest."""

import logging

import pytest

from simcse_pl.training import fit as training


@pytest.mark.parametrize(
    ("best", "mode", "message"),
    [
        (0.65, "max", "val/spearman from 0.7000 to 0.6500:"),
        (0.75, "min", "val/spearman from 0.7000 to 0.7500:"),
        (0.70, "max", None),
        (0.71, "max", None),
        (0.65, "min", None),
    ],
)
def test_a_worse_score_is_reported(best, mode, message, caplog):
    with caplog.at_level(logging.WARNING):
        training._warn_if_worse({"val/spearman": 0.70}, {"val/spearman": best}, "val/spearman", mode)
        training._warn_if_worse({"val/spearman": 0.70}, {"val/mrr": best}, "val/mrr", mode)  # resumed with others
    assert [message in line for line in caplog.messages] == ([True] if message else [])
