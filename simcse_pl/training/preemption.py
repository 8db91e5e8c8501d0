"""Being told to stop: a checkpoint first, and under SLURM a place in the queue again."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from simcse_pl.tracking.wandb_runs import mark_preempted
from simcse_pl.training.watchdog import submitits_signal
from simcse_pl.utils.distributed import is_first_process, sum_over_ranks, world_size
from simcse_pl.utils.errors import Stopped

log = logging.getLogger(__name__)


class Preemption(Callback):
    """Told to stop by Ctrl-C, or by SIGTERM as a cluster does, all ranks end after the same batch, with a checkpoint.

    A second Ctrl-C does not wait for it. By SIGTERM, under SLURM the job is put into the queue again. What submitit
    runs is told by submitit's own signal, SIGUSR2 where SUBMITIT_PREEMPT_SIGNAL names no other, and it is submitit that
    starts it again.

    Args:
        path: of the checkpoint.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._told: int | None = None  # the signal
        self._start_again: Callable[[], Any] = _requeue

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the signal over from Lightning, whose handler begins a broadcast amid whatever a rank is doing.

        When training ends, Lightning puts back what was there before it.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        signal.signal(signal.SIGINT, self._note)
        submitits = submitits_signal()
        before = signal.signal(submitits or signal.SIGTERM, self._note)
        if submitits and callable(before):
            self._start_again = partial(before, submitits, None)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Before training, and after it, nothing is lost by stopping at once."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if trainer.state.fn != "fit" and in_main_thread and not submitits_signal():
            signal.signal(signal.SIGTERM, _stop_at_once)

    on_test_start = on_validation_start

    def _note(self, number: int, frame: Any) -> None:
        self._told = number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if is_first_process():  # print may be what was interrupted, and is not to be called amid itself
                os.write(2, b"\ninterrupted: training stops after this batch; Ctrl-C again stops it now\n")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Ask all ranks whether one was told, and stop then: the batch before is logged, and validated if it was due.

        Raises:
            Stopped: one was.
        """
        stop: bool | torch.Tensor = self._told is not None
        if world_size() > 1:
            stop = sum_over_ranks(torch.tensor(float(stop), device=pl_module.device)) > 0
        if not stop:
            return
        told = self._told or signal.SIGTERM  # another rank was
        progress = trainer.fit_loop.epoch_loop.batch_progress
        progress.total.ready -= 1  # the batch that has begun will be the first to be trained on
        progress.current.ready -= 1
        progress.is_last_batch = False  # after a validation Lightning would believe it, and leave that batch out
        for logger in trainer.loggers:  # first, so that the checkpoint knows of no points that the curves lack
            logger.save()
        trainer.save_checkpoint(self.path)
        mark_preempted()
        try:
            if trainer.is_global_zero:
                print(f"stopped after step {trainer.global_step}: resume=auto goes on", file=sys.stderr, flush=True)
                if told != signal.SIGINT:
                    self._start_again()
        finally:
            trainer.strategy.barrier()  # a rank that ends before may take the job down
        raise Stopped(signal.SIGINT if told == signal.SIGINT else signal.SIGTERM)


def _stop_at_once(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)
    if is_first_process():
        _requeue()
    raise Stopped(number)


def _requeue() -> None:
    array, job = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_JOB_ID")
    if job is None:
        return
    name = f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID')}" if array else job
    try:
        subprocess.run(["scontrol", "requeue", name], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        log.warning("SLURM did not take job %s again: %s", name, error)
