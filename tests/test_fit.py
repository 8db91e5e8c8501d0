"""What a run says at its end."""

import pytest

from simcse_pl.fit import _warn_if_worse


@pytest.mark.parametrize(("mode", "worse"), [("max", 0.7), ("min", 0.9)])
def test_a_run_warns_if_its_best_score_is_worse_than_before_training(mode, worse, caplog):
    for best in (1.6 - worse, 0.8, worse):
        assert not caplog.messages
        _warn_if_worse({"val/x": 0.8}, {"val/x": best}, "val/x", mode)
    assert caplog.messages[0].startswith(f"training has changed val/x from 0.8000 to {worse:.4f}: ")
