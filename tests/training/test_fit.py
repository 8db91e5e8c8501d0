"""The warning at the end of a run. tests/cli/test_train.py has the rest."""

import logging

import pytest

from simcse_pl.training import fit as training


@pytest.mark.parametrize(
    ("best", "message"), [(0.65, "val/spearman from 0.7000 to 0.6500:"), (0.70, None), (0.71, None)]
)
def test_a_lowered_score_is_reported(best, message, caplog):
    with caplog.at_level(logging.WARNING):
        training._warn_if_worse({"val/spearman": 0.70}, {"val/spearman": best}, "val/spearman", "max")
    assert [message in line for line in caplog.messages] == ([True] if message else [])
