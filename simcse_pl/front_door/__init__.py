"""What both front doors share: whatever goes wrong is told in one line, and a config is not trusted."""

import functools
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import hydra._internal.hydra
import hydra.core.utils
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simcse_pl.command_line import say_no_more
from simcse_pl.distributed import is_first_process, is_one_of_several
from simcse_pl.errors import FAILURE_STATUS, USER_ERROR_STATUS, FailureError, UserError, failure_line, one_line
from simcse_pl.files import written_whole
from simcse_pl.front_door.loader import CheckedLoader
from simcse_pl.front_door.trust import keep_secrets
from simcse_pl.front_door.types import check_types

T = TypeVar("T")

# What libraries warn of that is as it should be here.
_EXPECTED = (
    "Metric `SpearmanCorrcoef` will save all targets",
    ".*isinstance\\(treespec, LeafSpec\\)` is deprecated",
    "(Experiment logs|Checkpoint) directory .* exists and is not empty",
    "The '(train|val|test)_dataloader' does not have many workers",
    "You're resuming from a checkpoint that ended before the epoch ended",  # the datamodule knows where
    "\n'hydra/launcher/.*' is validated against ConfigStore schema with the same name",  # ours are whole without it
    "The number of training batches .* is smaller than the logging interval",
    "Found [0-9]+ module\\(s\\) in eval mode at the start of training",  # the queue's encoder
)


def run(main: Callable[[], Any]) -> None:
    """Run a front door: a user's mistake is one line and status 2, any other failure one line and status 1.

    With `debug=true` among the options, whatever it is keeps its traceback.

    Args:
        main: what `hydra.main` has made.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises what it would print over several lines
    hydra._internal.hydra.ConfigLoaderImpl = CheckedLoader  # type: ignore[attr-defined]
    hydra.core.utils._save_config = _save_config  # type: ignore[assignment]
    logging.raiseExceptions = False  # a log that cannot be written is no reason for a traceback
    keep_secrets()
    try:
        if any(argument.startswith("--e") for argument in sys.argv):  # which argparse completes; the file is a pickle
            raise UserError("--experimental-rerun would run whatever code the file holds; give the options again")
        main()
        sys.stdout.flush()
    except Exception as error:
        raise SystemExit(_tell(error, debug="debug=true" in sys.argv)) from None


def _save_config(config: DictConfig, name: str, folder: Path) -> None:
    """In the place of Hydra's, which leaves half a file where the disk is full."""
    with written_whole(folder) as new:
        (new / name).write_text(OmegaConf.to_yaml(config), encoding="utf-8")


def failures_apart(task: Callable[[DictConfig], T]) -> Callable[[DictConfig], T | None]:
    """Print whatever goes wrong in a job, as `run` does; in a multirun let the other jobs run.

    A job that has failed has no results, which SweepTable tells at the end. A job of several ranks ends all of it, lest
    the others wait for it.
    """
    _ignore_what_is_expected()  # of Hydra, which comes before the task

    @functools.wraps(task)
    def wrapped(config: DictConfig) -> T | None:
        _ignore_what_is_expected()  # once more, ahead of the filters of what has been imported since
        keep_secrets()  # in a job that a launcher runs in a process of its own, too
        if not is_first_process():  # what there is to say, rank 0 says
            logging.getLogger("simcse_pl").setLevel(logging.WARNING)
        try:
            for name in _missing(OmegaConf.to_container(config)):
                raise UserError(f"{name} is missing: add {name}=VALUE (--help says what it is)")
            check_types(config)
            return task(config)
        except Exception as error:
            status = _tell(error, debug=config.debug)
            if HydraConfig.get().mode == RunMode.MULTIRUN and not is_one_of_several():
                return None
            raise SystemExit(status) from None  # of which Hydra says nothing more

    return wrapped


def _tell(error: Exception, debug: bool) -> int:
    """Print what has gone wrong to standard error; the exit status that says whose fault it is."""
    mistake = next((cause for cause in _causes(error) if _is_the_users(cause)), None)
    failure = next((cause for cause in _causes(error) if isinstance(cause, FailureError)), None)
    refused = next((cause for cause in _causes(error) if isinstance(cause, OSError)), None)  # by the system
    if debug:
        traceback.print_exception(error)
    elif mistake is not None:
        print(f"error: {one_line(mistake)}", file=sys.stderr)
    elif failure is not None:
        print(f"error: {failure_line(failure)}", file=sys.stderr)
    elif refused is not None:
        say_no_more()
        print(f"error: {failure_line(refused)} (debug=true shows where)", file=sys.stderr)
    else:
        what = f"{type(error).__name__}: {one_line(error)}"
        print(f"error: {what} (this should not happen; debug=true shows where)", file=sys.stderr)
    return FAILURE_STATUS if mistake is None else USER_ERROR_STATUS


def _missing(node: Any, name: str = "") -> Iterator[str]:
    """The options that the config leaves to the user, written ???."""
    if node == MISSING:
        yield name
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _missing(value, f"{name}.{key}" if name else str(key))


def _is_the_users(error: BaseException) -> bool:
    """Lightning's are known by their name: its import takes seconds, and evaluate.py does without it."""
    return isinstance(error, UserError) or type(error).__name__ == "MisconfigurationException"  # no such device, say


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        hidden = error.__context__ if isinstance(error, OmegaConfBaseException) else None
        error = error.__cause__ or hidden


def _ignore_what_is_expected() -> None:
    for message in _EXPECTED:
        warnings.filterwarnings("ignore", message)
