"""Being told to stop: what SLURM is asked for. That a run goes on is in test_resume.py."""

import signal
from types import SimpleNamespace

import pytest
import torch

from simcse_pl.training.preemption import Preemption
from simcse_pl.utils.errors import Stopped


@pytest.fixture
def trainer(tmp_path):
    saved = []
    progress = SimpleNamespace(total=SimpleNamespace(ready=8), current=SimpleNamespace(ready=2))
    loops = SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress))
    waited = []
    return SimpleNamespace(
        loggers=[SimpleNamespace(save=lambda: saved.append("curves"))],
        save_checkpoint=saved.append,
        saved=saved,
        is_global_zero=True,
        global_step=7,
        fit_loop=loops,
        strategy=SimpleNamespace(barrier=lambda: waited.append(True)),
        waited=waited,
    )


@pytest.fixture
def preemption(tmp_path):
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Preemption(tmp_path / "last.ckpt")
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("hook", ["on_validation_start", "on_test_start"])
def test_outside_of_training_it_stops_at_once(preemption, trainer, hook, monkeypatch):
    monkeypatch.setattr("simcse_pl.training.preemption._requeue", lambda: trainer.saved.append("requeued"))
    trainer.state = SimpleNamespace(fn="fit")
    before = signal.getsignal(signal.SIGTERM)
    getattr(preemption, hook)(trainer, MODULE)
    assert signal.getsignal(signal.SIGTERM) is before
    trainer.state = SimpleNamespace(fn="validate")
    getattr(preemption, hook)(trainer, MODULE)
    with pytest.raises(Stopped) as stopped:
        signal.raise_signal(signal.SIGTERM)
    assert stopped.value.code == 143 and trainer.saved == ["requeued"]


MODULE = SimpleNamespace(device=torch.device("cpu"))


def test_nothing_happens_until_it_is_told(preemption, trainer):
    preemption.on_train_start(trainer, MODULE)
    preemption.on_train_batch_start(trainer, MODULE, None, 0)
    assert trainer.saved == []


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "12"}, "requeue 12"),
        ({"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "3"}, "requeue 9_3"),
    ],
)
def test_told_it_saves_and_asks_slurm_for_another_turn(
    preemption, trainer, environment, expected, tmp_path, monkeypatch, capsys
):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho $@ > {tmp_path}/asked\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    preemption.on_train_start(trainer, MODULE)
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Stopped) as stopped:
        preemption.on_train_batch_start(trainer, MODULE, None, 0)
    assert stopped.value.code == 143 and trainer.saved == ["curves", tmp_path / "last.ckpt"]
    assert capsys.readouterr().err == "stopped after step 7: resume=auto goes on\n"
    asked = tmp_path / "asked"
    assert (asked.read_text().strip() if asked.exists() else None) == expected


def test_interrupted_it_saves_and_asks_for_no_other_turn(preemption, trainer, monkeypatch, capfd):
    monkeypatch.setattr(preemption, "_start_again", lambda: trainer.saved.append("requeued"))
    preemption.on_train_start(trainer, MODULE)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(Stopped) as stopped:
        preemption.on_train_batch_start(trainer, MODULE, None, 0)
    assert stopped.value.code == 130 and trainer.saved == ["curves", preemption.path]
    told, stopped_after = capfd.readouterr().err.split("\n")[1:3]
    assert told == "interrupted: training stops after this batch; Ctrl-C again stops it now"
    assert stopped_after == "stopped after step 7: resume=auto goes on"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_without_scontrol_it_still_stops(preemption, trainer, monkeypatch, caplog):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    preemption.on_train_start(trainer, MODULE)
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Stopped):
        preemption.on_train_batch_start(trainer, MODULE, None, 0)
    assert "SLURM did not take job 12 again" in caplog.text


@pytest.mark.parametrize("name", [None, "USR1"])
def test_submitit_starts_again_what_it_has_told_once_it_is_saved(preemption, trainer, monkeypatch, name):
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    if name:
        monkeypatch.setenv("SUBMITIT_PREEMPT_SIGNAL", name)
    number = signal.SIGUSR1 if name else signal.SIGUSR2
    told = []

    def submitits(*arguments):
        told.append((arguments, list(trainer.saved)))
        raise SystemExit(122)

    before = signal.signal(number, submitits), signal.getsignal(signal.SIGTERM)
    preemption.on_train_start(trainer, MODULE)
    signal.raise_signal(number)
    assert told == [], "not amid a batch"
    with pytest.raises(SystemExit) as stopped:
        preemption.on_train_batch_start(trainer, MODULE, None, 0)
    assert stopped.value.code == 122
    assert told == [((number, None), ["curves", preemption.path])] and trainer.waited == [True]
    assert signal.getsignal(signal.SIGTERM) is before[1]
    signal.signal(number, before[0])
