"""What a run refuses to begin, and what it says at its end."""

import pytest
from pytorch_lightning.callbacks import EMAWeightAveraging, ModelPruning, StochasticWeightAveraging

from simcse_pl.fit import _warn_if_worse, check_trainer
from simcse_pl.utils.errors import UserError
from tests.conftest import quiet_trainer


@pytest.mark.parametrize(("mode", "worse"), [("max", 0.7), ("min", 0.9)])
def test_a_run_warns_if_its_best_score_is_worse_than_before_training(mode, worse, caplog):
    for best in (1.6 - worse, 0.8, worse):
        assert not caplog.messages
        _warn_if_worse({"val/x": 0.8}, {"val/x": best}, "val/x", mode)
    assert caplog.messages[0].startswith(f"training has changed val/x from 0.8000 to {worse:.4f}: ")


@pytest.mark.parametrize(
    "callback", [EMAWeightAveraging(), StochasticWeightAveraging(1e-3), ModelPruning("l1_unstructured")]
)
def test_a_callback_whose_weights_would_not_be_saved_is_refused(callback):
    with pytest.raises(UserError, match=f"^callbacks: {type(callback).__name__}: the saved encoder would not have"):
        check_trainer(quiet_trainer(callbacks=[callback]))
