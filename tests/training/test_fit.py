"""A run from its first validation to its last test: what it says of itself. test_train.py has the rest."""

import logging

import pytest

from simcse_pl.training import fit as training


@pytest.mark.parametrize(("best", "told"), [(0.65, "by 5.00 or more"), (0.70, None), (0.71, None)])
def test_training_that_lowers_the_score_says_so(best, told, caplog):
    with caplog.at_level(logging.WARNING):
        training._tell_if_lowered({"val/spearman": 0.70}, {"val/spearman": best})
    assert [told in message for message in caplog.messages] == ([True] if told else [])
