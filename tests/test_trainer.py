"""The choice of device and precision, and trainers that cannot train."""

import pytest
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import callbacks
from pytorch_lightning.strategies import ModelParallelStrategy

from simcse_pl.checkpoints import BestCheckpoint
from simcse_pl.train_job import build_trainer
from simcse_pl.trainer import _REFUSED, check_trainer, has_bf16, make_trainer
from simcse_pl.utils.errors import UserError
from tests.conftest import quiet_trainer
from tests.support.helpers import composed


@pytest.mark.parametrize(("avx512", "amx"), [(True, False), (False, True), (False, False)])
def test_a_cpu_has_bf16_with_avx512_or_amx(avx512, amx, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert has_bf16("cpu") is (avx512 or amx)
    assert make_trainer(accelerator="cpu", logger=False).precision == ("bf16-mixed" if avx512 or amx else "32-true")
    assert make_trainer("64-true", "cpu", logger=False).precision == "64-true"


def test_steps_between_validations_count_across_epochs():
    assert make_trainer("32-true", "cpu", logger=False, val_check_interval=3).check_val_every_n_epoch is None
    assert make_trainer("32-true", "cpu", logger=False).check_val_every_n_epoch == 1


TORCHRUN = {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
SLURM = {"SLURM_NTASKS_PER_NODE": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}


@pytest.mark.parametrize(
    ("options", "variables", "message"),
    [
        ({"precision": "bf16-true"}, {}, "^precision=bf16-true: small updates .* are lost: set it to bf16-mixed$"),
        ({}, TORCHRUN, "^devices=1, num_nodes=1: 2 processes were started: .* set trainer=ddp$"),
        ({"strategy": "ddp", "devices": 2}, SLURM | {"SLURM_NTASKS": "4"}, "^devices=2, num_nodes=1: 4 processes "),
        ({"strategy": "ddp", "devices": 2}, {"SLURM_NTASKS": "2"}, "^trainer: "),
        ({"strategy": ModelParallelStrategy(), "devices": 2}, {}, "^strategy: .* set trainer=ddp or trainer=fsdp$"),
        ({"strategy": "ddp_spawn", "devices": 2}, {}, "^strategy: the results of spawned .* set it to ddp$"),
        ({"strategy": "ddp", "num_nodes": 2}, {}, "^num_nodes=2: nothing starts the other nodes: use "),
    ],
)
def test_trainers_that_would_lose_updates_wait_or_train_alone_are_errors(options, variables, message, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        make_trainer(**{"precision": "32-true", "accelerator": "cpu", "logger": False} | options)


def test_one_slurm_task_starts_the_ranks_of_its_devices(monkeypatch):
    for name, value in (SLURM | {"SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "1"}).items():
        monkeypatch.setenv(name, value)
    trainer = make_trainer("32-true", "cpu", logger=False, strategy="ddp", devices=2)
    assert trainer.world_size == 2 and isinstance(trainer.strategy.cluster_environment, LightningEnvironment)


def test_the_callbacks_that_are_refused_exist():
    assert not [name for name in _REFUSED if name[0].isupper() and not hasattr(callbacks, name)]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"callbacks": callbacks.EMAWeightAveraging()}, "WeightAveraging: its weights would not"),  # a subclass
        ({"accumulate_grad_batches": 2}, "trainer.accumulate_grad_batches: it adds no negatives"),
        ({"fast_dev_run": True}, "trainer.fast_dev_run: it saves no encoder"),
        ({"overfit_batches": 1}, "trainer.overfit_batches: set experiment=overfit"),
        ({"limit_train_batches": 1}, "trainer.limit_train_batches: set data.limit"),  # 1.0 is all
        ({"limit_val_batches": 0}, "trainer.limit_val_batches: the evaluators need all"),
        ({"limit_test_batches": 0}, "trainer.limit_test_batches: the evaluators need all"),
        ({"check_val_every_n_epoch": 1}, "trainer.check_val_every_n_epoch: last steps may be neither"),
        ({"max_epochs": -1, "max_time": {"seconds": 1}}, "trainer.max_epochs=-1: the schedule needs a last step"),
        ({}, "callbacks: the first checkpoint must be a BestCheckpoint"),
        ({"best": ("val/mrr", "min")}, "monitor=val/mrr: higher is better; set"),
        ({"best": ("val/loss", "max")}, "monitor=val/loss: lower is better; set"),
    ],
)
def test_what_of_lightning_does_not_work_is_refused(options, line):
    if best := options.pop("best", None):
        options |= {"callbacks": BestCheckpoint(monitor=best[0], mode=best[1]), "enable_checkpointing": True}
    with pytest.raises(UserError, match=f"^{line}"):
        check_trainer(quiet_trainer(**{"max_epochs": 1, "check_val_every_n_epoch": None} | options))


@pytest.mark.parametrize(
    "option",
    [
        "+trainer.max_time={seconds: 7}",
        "+callbacks.timer={_target_: pytorch_lightning.callbacks.Timer, duration: {seconds: 7}}",
    ],
)
def test_a_duration_is_read_from_a_config(option):
    trainer = build_trainer(composed("trainer=cpu", option), [])
    assert [callback._duration for callback in trainer.callbacks if isinstance(callback, callbacks.Timer)] == [7]
