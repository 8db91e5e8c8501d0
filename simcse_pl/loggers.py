"""Weights & Biases as the project uses it: offline unless asked, no prompts, the best score as the summary."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import wandb
from pytorch_lightning.loggers import WandbLogger

from simcse_pl.distributed import is_first_process
from simcse_pl.errors import UserError

MODES = ("auto", "online", "offline")


def wandb_logger(
    save_dir: str | Path,
    mode: str = "auto",
    project: str = "simcse_pl",
    name: str | None = None,
    group: str | None = None,
    tags: Sequence[str] = (),
) -> WandbLogger:
    """A W&B logger that never asks anything.

    Args:
        save_dir: the folder that gets the folder `wandb`.
        mode: `online`, `offline`, or `auto`: what WANDB_MODE says, else online for a user who is logged in
            (a key in the environment or in netrc), else offline.
        project, name, group, tags: as W&B has them.

    Raises:
        UserError: an unknown mode, or `online` for nobody who is logged in.
    """
    if mode not in MODES:
        raise UserError(f"logger.wandb.mode={mode}: choose one of {', '.join(MODES)}")
    logged_in = wandb.login(prompt=False, verify=False)
    if mode == "online" and not logged_in:
        raise UserError("logger.wandb.mode=online: nobody is logged in; run `wandb login` or set WANDB_API_KEY")
    if mode == "auto":
        mode = os.environ.get("WANDB_MODE") or ("online" if logged_in else "offline")
    if not is_first_process():
        return WandbLogger(save_dir=save_dir, name=name)
    run = wandb.init(
        dir=save_dir,
        mode=mode,  # type: ignore[arg-type]
        project=project,
        name=name,
        group=group,
        tags=list(tags),
        settings=wandb.Settings(silent=True),
    )
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    run.define_metric("val/spearman", summary="max", step_metric="trainer/global_step", step_sync=True)
    return WandbLogger(experiment=run)


@contextmanager
def closing_run() -> Iterator[None]:
    """End the W&B run at the end of the block, as failed after an exception; the next job starts one of its own."""
    try:
        yield
    except BaseException:
        wandb.finish(exit_code=1)
        raise
    wandb.finish()
