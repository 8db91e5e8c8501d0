"""Training of a config in this process: whole, or stopped and resumed."""

import pytest
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate

from simcse_pl.train_job import build_data, build_module


class StoppedError(Exception):
    """Raised to stop a run."""


class StopAfter(pl.Callback):
    """Write a checkpoint after some steps, and stop as if the process was killed."""

    def __init__(self, steps, path):
        self.steps, self.path = steps, path

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.steps:
            trainer.save_checkpoint(self.path)
            raise StoppedError


def build(config):
    """Return the module and the data, as train.py does."""
    pl.seed_everything(config.seed, verbose=False)
    module = build_module(config, instantiate(config.model))
    return module, build_data(config, module)


def fit(config, *callbacks, checkpoint=None):
    """Train, and return the module and its optimizer's state."""
    module, data = build(config)
    quiet = {"enable_progress_bar": False, "enable_checkpointing": False, "limit_val_batches": 0}
    callbacks = [instantiate(config.callbacks.seeds), *callbacks]
    trainer = instantiate(config.trainer, logger=False, callbacks=callbacks, **quiet)
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    return module, trainer.optimizers[0].state_dict()["state"]


def assert_resumed_to_the_bit(config, module, state, folder):
    """Check that a run that is stopped after 2 steps and resumed equals an uninterrupted one."""
    with pytest.raises(StoppedError):
        fit(config, StopAfter(2, folder / "last.ckpt"))
    torch.manual_seed(99)  # the state of the process must not matter
    resumed, resumed_state = fit(config, checkpoint=folder / "last.ckpt")
    torch.testing.assert_close(resumed.state_dict(), module.state_dict(), atol=0, rtol=0)
    torch.testing.assert_close(resumed_state, state, atol=0, rtol=0)
    # at the last step: a weight that depends on it may be too small to change the bits
    assert resumed.step.batch.progress == module.step.batch.progress
