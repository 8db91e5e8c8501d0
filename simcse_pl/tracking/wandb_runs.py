"""Start and continue W&B runs: one run per folder, offline unless the user is logged in, without prompts."""

import json
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import wandb
from wandb.errors import AuthenticationError, CommError

from simcse_pl.results.run_files import WANDB_FILE
from simcse_pl.utils.errors import UserError, first_line, reraise_as
from simcse_pl.utils.files import write_text

log = logging.getLogger(__name__)

Mode = Literal["auto", "online", "offline"]
_IDENTITY = ("id", "project", "entity")
_TIMEOUTS = {"init_timeout": 30.0, "finish_timeout": 600.0}  # seconds, unless WANDB_INIT_TIMEOUT etc. are set
_LONGEST_NAME = 128  # characters; the W&B server rejects longer names
_FLUSH_SECONDS = 1.0  # a killed run loses at most this; W&B's default is 15


def start_run(
    folder: str | Path,
    mode: Mode = "auto",
    project: str = "simcse_pl",
    name: str | None = None,
    group: str | None = None,
    job_type: str | None = None,
    tags: Sequence[str] = (),
) -> wandb.Run:
    """Continue the W&B run of a folder, or start a new one.

    If W&B does not answer, the run is offline.

    Args:
        folder: the run's folder; W&B's files go to its subfolder `wandb`, and the run's id to a file.
        mode: `online`, `offline` or `auto`. `auto` follows WANDB_MODE and `wandb offline`; without them it is online
            if the user is logged in.
        project, name, group, job_type, tags: arguments of `wandb.init` for a new run.

    Raises:
        UserError: `online` without a login, a rejected key, or a damaged file in the folder.
    """
    folder = Path(folder)
    resolved = _mode(mode)
    before = remembered_run(folder)
    if name and len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 1]}…"
    new = {"project": project, "name": name, "group": group, "job_type": job_type, "tags": list(tags)}
    settings = wandb.Settings(silent=True, x_transaction_log_flush_interval=_FLUSH_SECONDS)
    for setting, seconds in _TIMEOUTS.items():
        if f"WANDB_{setting.upper()}" not in os.environ:
            setattr(settings, setting, seconds)
    start: Callable[..., wandb.Run] = partial(
        wandb.init,
        dir=folder,
        resume="allow",  # `wandb sync` then concatenates the parts of an offline run
        settings=settings,
        **({name: before[name] for name in _IDENTITY} if before else new),
    )
    try:
        run = start(mode=resolved)
    except AuthenticationError as error:
        raise UserError("W&B rejected the API key: run `wandb login`, or set WANDB_MODE=offline") from error
    except CommError as error:
        log.warning("W&B does not answer, so this run is offline: %s", first_line(error))
        run = start(mode="offline")
    if before:
        run.summary.update(before["summary"])  # `wandb sync` keeps only the summary of the last part
    remember(run)
    return run


def remember(run: wandb.Run) -> None:
    """Save a run's id and summary in its folder."""
    if run.disabled:
        return
    content = {"id": run.id, "project": run.project, "entity": run.entity or None, "summary": summary_of(run)}
    write_text(Path(run.settings.root_dir) / WANDB_FILE, json.dumps(content, indent=2) + "\n")


def remembered_run(folder: Path) -> dict[str, Any] | None:
    """Return `id`, `project`, `entity` and `summary` of a folder's W&B run; None if it has no run."""
    path = folder / WANDB_FILE
    if not path.is_file():
        return None
    with reraise_as(f"{path} is damaged, remove it to start a new W&B run"):
        saved = json.loads(path.read_text(encoding="utf-8"))
        return {name: saved[name] for name in _IDENTITY} | {"summary": dict(saved["summary"])}


def summary_of(run: wandb.Run) -> dict[str, Any]:
    """Return a run's summary as plain values, without W&B's own entries."""
    if run.disabled:
        return {}
    summary = run.summary._as_dict()  # there is no public method
    return {name: value for name, value in summary.items() if not name.startswith("_")}


def where_to_look(run: wandb.Run) -> str:
    """Return the URL of a run, or the command that uploads an offline run."""
    if run.disabled:
        return "disabled"
    return f"wandb sync {Path(run.dir).parents[1]}" if run.offline or run.url is None else run.url


def finish() -> None:
    """Finish the W&B run of this process, and remember its summary."""
    if wandb.run is not None:
        remember(wandb.run)
        wandb.finish()


def _mode(asked: str) -> str:
    default = os.environ.get("WANDB_MODE") or wandb.setup().settings.mode  # the settings file of `wandb offline`
    if asked == "offline":
        return asked
    if asked == "auto" and default != "online":
        return default
    logged_in = wandb.login(prompt=False, verify=False)
    if asked == "online" and not logged_in:
        raise UserError("W&B: mode=online needs a login: run `wandb login`, or set WANDB_API_KEY")
    return "online" if logged_in else "offline"
