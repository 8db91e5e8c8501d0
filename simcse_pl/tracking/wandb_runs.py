"""Runs of Weights & Biases: offline unless asked, never a prompt, and one for a folder, however often it goes on."""

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import wandb
from wandb.errors import AuthenticationError, CommError

from simcse_pl.results.run_files import WANDB_FILE
from simcse_pl.utils.errors import Stopped, UserError, first_line
from simcse_pl.utils.files import atomic_write

log = logging.getLogger(__name__)

Mode = Literal["auto", "online", "offline"]
_PLACE = ("id", "project", "entity")  # what tells W&B which run is meant
# What W&B may take, where WANDB_INIT_TIMEOUT and WANDB_FINISH_TIMEOUT do not say it; all stays in the folder, too.
_SECONDS = {"init_timeout": 30.0, "finish_timeout": 600.0}
_LONGEST_NAME = 128  # characters; W&B's server rejects longer ones
_FLUSHED_EVERY = 1.0  # seconds: what a run that is killed may lack; W&B's own are 15


def start_run(
    folder: str | Path,
    mode: Mode = "auto",
    project: str = "simcse_pl",
    name: str | None = None,
    group: str | None = None,
    job_type: str | None = None,
    tags: Sequence[str] = (),
) -> wandb.Run:
    """The W&B run of a folder: the one that it has had before, else a new one, which the folder remembers.

    Where W&B does not answer, the run is an offline one.

    Args:
        folder: gets the folder `wandb`, and the file that remembers.
        mode: `online`, `offline`, or `auto`: what WANDB_MODE or `wandb offline` say, else online for a user who is
            logged in (a key in the environment or in netrc), else offline.
        project, name, group, job_type, tags: of a new run, as W&B has them; a name longer than W&B takes is cut.

    Raises:
        UserError: an unknown mode, `online` for nobody who is logged in or a key that is refused, or a file that is
            damaged.
    """
    folder = Path(folder)
    resolved = _mode(mode)
    before = remembered_run(folder)
    new = {
        "project": project,
        "name": name and _shortened(name),
        "group": group,
        "job_type": job_type,
        "tags": list(tags),
    }
    settings = wandb.Settings(silent=True, x_transaction_log_flush_interval=_FLUSHED_EVERY)
    for setting, seconds in _SECONDS.items():
        if f"WANDB_{setting.upper()}" not in os.environ:
            setattr(settings, setting, seconds)
    start: Callable[..., wandb.Run] = partial(
        wandb.init,
        dir=folder,
        resume="allow",  # offline too: `wandb sync` then puts the parts of a run one behind the other
        settings=settings,
        **({name: before[name] for name in _PLACE} if before else new),
    )
    try:
        run = start(mode=resolved)
    except AuthenticationError as error:
        raise UserError("W&B does not take the key: run `wandb login`, or set WANDB_MODE=offline") from error
    except CommError as error:
        log.warning("W&B does not answer, and this run is kept offline: %s", first_line(error))
        run = start(mode="offline")
    if before:
        run.summary.update(before["summary"])  # of which `wandb sync` keeps the last part's alone
    remember(run)
    return run


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def remember(run: wandb.Run) -> None:
    """Let a run's folder know the run and its summary so far."""
    if run.disabled:
        return
    folder = Path(run.settings.root_dir)
    content = {"id": run.id, "project": run.project, "entity": run.entity or None, "summary": summary_of(run)}
    with atomic_write(folder) as files:
        (files / WANDB_FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def remembered_run(folder: Path) -> dict[str, Any] | None:
    """What a folder knows of its run: `id`, `project`, `entity` and `summary`; None where it has none.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / WANDB_FILE
    if not path.is_file():
        return None
    try:
        match json.loads(path.read_text(encoding="utf-8")):
            case {"id": str(), "project": str(), "entity": str() | None, "summary": dict()} as content:
                return {name: content[name] for name in (*_PLACE, "summary")}
        raise ValueError("it must hold id, project, entity and summary")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({first_line(error)}): remove it to begin a new W&B run") from error


def summary_of(run: wandb.Run) -> dict[str, Any]:
    """A run's summary as plain values, but for W&B's own."""
    if run.disabled:
        return {}
    summary = run.summary._as_dict()  # which has no public name
    return {name: value for name, value in summary.items() if not name.startswith("_")}


def where_to_look(run: wandb.Run) -> str:
    """The address of a run's dashboard, or for an offline run the command that brings it there."""
    if run.disabled:
        return "disabled"
    return f"wandb sync {Path(run.dir).parents[1]}" if run.offline or run.url is None else run.url


@contextmanager
def closing_run() -> Iterator[None]:
    """End the W&B run at the end of the block, as failed after an exception; the next job starts one of its own.

    One that was told to stop is preempted.
    """
    try:
        yield
    except Stopped:
        mark_preempted()
        _finish(exit_code=1)
        raise
    except BaseException:
        wandb.finish(exit_code=1)
        raise
    _finish(exit_code=0)


def mark_preempted() -> None:
    """Tell W&B that the run ends because it was told to, and will go on."""
    if wandb.run is not None:
        wandb.run.mark_preempting()


def _finish(exit_code: int) -> None:
    if wandb.run is not None:
        remember(wandb.run)
        wandb.run.finish(exit_code)


def _mode(asked: str) -> str:
    if asked not in get_args(Mode):
        raise UserError(f"W&B: mode={asked}: choose one of {', '.join(get_args(Mode))}")
    said = os.environ.get("WANDB_MODE") or wandb.setup().settings.mode  # the latter of `wandb offline`'s file
    if asked == "offline" or (asked == "auto" and said != "online"):
        return asked if asked == "offline" else said
    logged_in = wandb.login(prompt=False, verify=False)
    if asked == "online" and not logged_in:
        raise UserError("W&B: mode=online, and nobody is logged in; run `wandb login` or set WANDB_API_KEY")
    return "online" if logged_in else "offline"
