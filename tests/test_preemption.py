"""Stopping on signals, and requeueing. test_checkpoints.py resumes such runs."""

import signal
import subprocess
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from simcse_pl.preemption import Preemption
from simcse_pl.utils.errors import Stopped
from tests.support.helpers import composed

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
MODULE = SimpleNamespace(stops=False)
LINE = "stopped after step 7: continue with resume=auto\n"


@pytest.fixture
def trainer():
    """A trainer that records its calls in `done`."""
    trainer = MagicMock(is_global_zero=True, global_step=7, world_size=1, done=[])
    trainer.state.fn = "fit"
    trainer.loggers = [SimpleNamespace(save=lambda: trainer.done.append("curves"))]
    trainer.save_checkpoint = trainer.done.append
    return trainer


@pytest.fixture
def preemption(tmp_path):
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield Preemption(tmp_path / "last.ckpt")
    for number, handler in before.items():
        signal.signal(number, handler)


def stopped_by(number, preemption, trainer):
    """Return the exit status after a signal during a batch."""
    preemption.on_train_start(trainer, MODULE)
    preemption.on_train_batch_start(trainer, MODULE, None, 0)
    signal.raise_signal(number)
    assert trainer.done == [], "not during a batch"
    with pytest.raises(SystemExit) as stopped:
        preemption.on_train_batch_start(trainer, MODULE, None, 0)
    return stopped.value.code


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_outside_training_a_signal_stops_at_once(number, status, preemption, trainer, monkeypatch):
    monkeypatch.setattr("simcse_pl.preemption._requeue", lambda: trainer.done.append("requeued"))
    before = signal.getsignal(number)
    preemption.on_validation_start(trainer, MODULE)
    assert signal.getsignal(number) is before, "in training"
    trainer.state.fn = "validate"
    preemption.on_validation_start(trainer, MODULE)
    with pytest.raises(Stopped) as stopped:
        signal.raise_signal(number)
    assert stopped.value.code == status and trainer.done == ["requeued"]


@pytest.mark.parametrize(
    ("number", "variables", "requeued"),
    [
        (signal.SIGTERM, {}, None),
        (signal.SIGUSR1, {}, None),
        (signal.SIGTERM, {"SLURM_JOB_ID": "12"}, "requeue 12"),
        (signal.SIGUSR1, {"SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "3"}, "requeue 9_3"),
    ],
)
def test_signals_save_and_requeue_the_slurm_job(number, variables, requeued, preemption, trainer, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda words, check: ran.append(" ".join(words)))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert stopped_by(number, preemption, trainer) == 143
    assert trainer.done == ["curves", preemption.path] and capsys.readouterr().err == LINE
    assert ran == ([f"scontrol {requeued}"] if requeued else [])


def test_a_signal_in_the_last_batch_stops_after_its_checkpoint(preemption, trainer):
    trainer.strategy.reduce_boolean_decision = lambda decision, all: decision
    preemption.on_train_start(trainer, MODULE)
    preemption.on_train_end(trainer, MODULE)
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Stopped):
        preemption.on_train_end(trainer, MODULE)


def test_ctrl_c_saves_and_does_not_requeue(preemption, trainer, monkeypatch, capfd):
    monkeypatch.setattr(preemption, "_requeue", lambda: trainer.done.append("requeued"))
    assert stopped_by(signal.SIGINT, preemption, trainer) == 130
    assert trainer.done == ["curves", preemption.path]
    interrupted = "\ninterrupted: training stops after this batch; Ctrl-C again stops it now\n"
    assert capfd.readouterr().err == interrupted + LINE
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_job_of_a_sweep_says_to_repeat_the_command(preemption, trainer, capsys):
    composed("hydra.job.num=0", "hydra.sweep.dir=multirun/mine")
    stopped_by(signal.SIGTERM, preemption, trainer)
    assert capsys.readouterr().err == "stopped after step 7: repeat the command with hydra.sweep.dir=multirun/mine\n"


def test_submitits_signal_saves_and_calls_submitits_handler(preemption, trainer, monkeypatch):
    number = signal.SIGUSR1
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setenv("SUBMITIT_PREEMPT_SIGNAL", "USR1")

    def submitits(*arguments):
        trainer.done.append(arguments)
        raise SystemExit(122)

    signal.signal(number, submitits)
    assert stopped_by(number, preemption, trainer) == 122
    assert trainer.done == ["curves", preemption.path, (number, None)]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
