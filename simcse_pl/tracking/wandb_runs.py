"""Start, continue and finish W&B runs: one run per folder, offline unless the user is logged in, without prompts.

W&B is imported when a run starts, so runs with other loggers do without it.
"""

import json
import logging
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simcse_pl.results.run_files import WANDB_FILE
from simcse_pl.utils.errors import Stopped, UserError, first_line, reraise_as
from simcse_pl.utils.files import write_text

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)

Mode = Literal["auto", "online", "offline"]
_IDENTITY = ("id", "project", "entity")
LONGEST_NAME = 128  # characters; the W&B server rejects longer names
_FLUSH_SECONDS = 1.0  # a killed run loses at most this; W&B's default is 15


def start_run(folder: str | Path, mode: Mode = "auto", name: str | None = None, **new: Any) -> "wandb.Run":
    """Continue the W&B run of a folder, or start a new one.

    If W&B does not answer or rejects the key, the run is offline.

    Args:
        folder: the run's folder; W&B's files go to its subfolder `wandb`, and the run's id to a file.
        mode: `online`, `offline` or `auto`. `auto` follows WANDB_MODE and `wandb offline`; without them it is online
            if the user is logged in.
        name, new: arguments of `wandb.init` for a new run, such as project, group, job_type and tags.

    Raises:
        UserError: `online` without a login, or a damaged file in the folder.
    """
    import wandb
    from wandb.errors import CommError

    folder = Path(folder)
    resolved = _mode(mode)
    before = remembered_run(folder)
    if name and len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 1]}…"
    settings = wandb.Settings(
        silent=True, x_transaction_log_flush_interval=_FLUSH_SECONDS, init_timeout=30, finish_timeout=600
    )
    options: dict[str, Any] = {name: before[name] for name in _IDENTITY} if before else {"name": name, **new}
    options |= {"dir": folder, "resume": "allow", "settings": settings}  # `wandb sync` concatenates offline parts
    try:
        run = wandb.init(mode=resolved, **options)
    except CommError as error:  # no answer, or a rejected key
        log.warning("W&B does not answer, so this run is offline: %s", first_line(error))
        run = wandb.init(mode="offline", **options)
    if before:
        run.summary.update(before["summary"])  # `wandb sync` keeps only the summary of the last part
    _remember(run)
    return run


def _mode(asked: str) -> Any:
    import wandb

    default = os.environ.get("WANDB_MODE") or wandb.setup().settings.mode  # the settings file of `wandb offline`
    if asked == "offline":
        return asked
    if asked == "auto" and default != "online":
        return default
    logged_in = wandb.login(prompt=False, verify=False)
    if asked == "online" and not logged_in:
        raise UserError("W&B: mode=online needs a login: run `wandb login`, or set WANDB_API_KEY")
    return "online" if logged_in else "offline"


def _remember(run: "wandb.Run") -> None:
    """Save a run's id and summary in its folder."""
    if run.disabled:
        return
    summary = {name: value for name, value in run.summary._as_dict().items() if not name.startswith("_")}
    content = {"id": run.id, "project": run.project, "entity": run.entity or None, "summary": summary}
    write_text(Path(run.settings.root_dir) / WANDB_FILE, json.dumps(content, indent=2) + "\n")


def remembered_run(folder: Path) -> dict[str, Any] | None:
    """Return `id`, `project`, `entity` and `summary` of a folder's W&B run; None if it has no run."""
    path = folder / WANDB_FILE
    if not path.is_file():
        return None
    with reraise_as(f"{path} is damaged, remove it to start a new W&B run"):
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return saved | {"summary": dict(saved["summary"])}


def where_to_look(run: "wandb.Run") -> str:
    """Return the URL of a run, or the command that uploads an offline run."""
    if run.disabled:
        return "disabled"
    return f"wandb sync {shlex.quote(str(Path(run.dir).parents[1]))}" if run.offline or run.url is None else run.url


@contextmanager
def closing_run() -> Iterator[None]:
    """Finish a W&B run of the block at its end; it is failed after an exception, and preempted after `Stopped`."""
    before = _current_run()  # a user's
    try:
        yield
    except BaseException as error:
        if isinstance(error, Stopped):
            mark_preempted()
        if (run := _current_run()) and run is not before:
            run.finish(exit_code=1)
        raise
    if (run := _current_run()) and run is not before:
        _remember(run)
        run.finish()


def mark_preempted() -> None:
    """Mark the W&B run as preempted: it will be resumed."""
    if run := _current_run():
        run.mark_preempting()


def _current_run() -> Any:
    """Return the W&B run of this process, if there is one."""
    return getattr(sys.modules.get("wandb"), "run", None)
