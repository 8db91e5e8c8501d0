"""Stop on Ctrl-C, SIGTERM or SIGUSR1: write a checkpoint, and requeue the job under SLURM."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from hydra.core.hydra_config import HydraConfig
from pytorch_lightning import Callback, LightningModule, Trainer

from simcse_pl.config import in_sweep
from simcse_pl.loggers import mark_preempted
from simcse_pl.utils.errors import Stopped
from simcse_pl.utils.private import ignore_lightnings_sigterm
from simcse_pl.utils.processes import is_first_process, submitits_signal
from simcse_pl.utils.terminal import hydra_option

log = logging.getLogger(__name__)
_STOPS = (signal.SIGTERM, signal.SIGUSR1)  # `#SBATCH --signal=USR1@90` sends the second before the time limit


class Preemption(Callback):
    """On Ctrl-C, SIGTERM or SIGUSR1, write a checkpoint after the current batch and end all ranks.

    A second Ctrl-C does not wait for the batch. SIGTERM and SIGUSR1 also requeue a SLURM job. Submitit
    sends its jobs another signal (SIGUSR2, or SUBMITIT_PREEMPT_SIGNAL) and requeues them itself.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._received: int | None = None
        self._requeue: Callable[[], Any] = _requeue

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace Lightning's signal handlers until training ends.

        Lightning's handler of SIGTERM communicates with other ranks at once. This fails if the signal arrives while
        the ranks already communicate. In each step, Lightning also asks rank 0 whether its handler was called.
        """
        ignore_lightnings_sigterm(trainer)
        if current_thread() is not main_thread():
            return  # Python allows no handlers there
        for number in (signal.SIGINT, *_STOPS[: 1 if submitits_signal() else 2]):
            signal.signal(number, self._note)
        if submitits := submitits_signal():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as submitit does
            before = signal.signal(submitits, self._note)
            if callable(before):
                self._requeue = partial(before, submitits, None)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let signals stop the run at once before and after training, when there is nothing to save."""
        if trainer.state.fn != "fit" and not submitits_signal() and current_thread() is main_thread():
            for number in _STOPS:
                signal.signal(number, _stop_at_once)

    on_test_start = on_validation_start

    def _note(self, number: int, frame: Any) -> None:
        self._received = number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if is_first_process():  # not by print, which may be what the signal interrupted
                os.write(2, b"\ninterrupted: training stops after this batch; Ctrl-C again stops it now\n")

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        """Save a checkpoint and raise Stopped if any rank received a signal.

        At this point Lightning has logged and validated the previous batch. Several ranks first train on this batch:
        its step tells all of them that one received a signal.
        """
        pl_module.stop_asked = self._received is not None
        several = trainer.world_size > 1
        if not (pl_module.stops if several else pl_module.stop_asked):
            return
        progress = trainer.fit_loop.epoch_loop.batch_progress
        progress.total.ready -= 1  # the batch that has just started will be trained on after resuming
        progress.current.ready -= 1
        progress.is_last_batch = False  # left from a validation; Lightning would skip that batch
        for logger in trainer.loggers:  # before the checkpoint, so that it is not newer than the curves
            logger.save()
        trainer.save_checkpoint(self.path)
        self._stop(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raise Stopped if a signal came during the last batch. The last checkpoint is written; the test is missing."""
        if trainer.strategy.reduce_boolean_decision(self._received is not None, all=False):
            self._stop(trainer)

    def _stop(self, trainer: Trainer) -> None:
        """End all ranks after a checkpoint."""
        received = self._received or signal.SIGTERM
        mark_preempted()
        try:
            if trainer.is_global_zero:
                option = hydra_option("hydra.sweep.dir", HydraConfig.get().sweep.dir) if in_sweep() else ""
                again = f"repeat the command with {option}" if option else "continue with resume=auto"
                print(f"stopped after step {trainer.global_step}: {again}", file=sys.stderr, flush=True)
                if received != signal.SIGINT:
                    self._requeue()
        finally:
            trainer.strategy.barrier()  # a rank that ends earlier may end the job
        if not trainer.is_global_zero:
            raise SystemExit(0)  # at another status, Lightning kills rank 0, which may still be writing
        raise Stopped(signal.SIGINT if received == signal.SIGINT else signal.SIGTERM)


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
        log.warning("cannot requeue SLURM job %s: %s", name, error)
