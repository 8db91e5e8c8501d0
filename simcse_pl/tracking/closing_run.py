"""Finish the W&B run of this process, if there is one. Runs with other loggers do not import W&B."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from simcse_pl.utils.errors import Stopped


@contextmanager
def closing_run() -> Iterator[None]:
    """Finish the W&B run at the end of the block; it is failed after an exception, and preempted after `Stopped`."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Stopped):
            mark_preempted()
        if "wandb" in sys.modules:
            sys.modules["wandb"].finish(exit_code=1)
        raise
    if "simcse_pl.tracking.wandb_runs" in sys.modules:
        sys.modules["simcse_pl.tracking.wandb_runs"].finish()


def mark_preempted() -> None:
    """Mark the W&B run as preempted: it will be resumed."""
    wandb = sys.modules.get("wandb")
    if wandb and wandb.run is not None:
        wandb.run.mark_preempting()
