"""What both front doors share: a user's mistake is told in one line."""

import functools
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import MISSING, DictConfig, OmegaConf

from simcse_pl.distributed import is_first_process, is_one_of_several
from simcse_pl.errors import USER_ERROR_STATUS, UserError, one_line

T = TypeVar("T")

# What libraries warn of that is as it should be here.
_EXPECTED = (
    "Metric `SpearmanCorrcoef` will save all targets",
    ".*isinstance\\(treespec, LeafSpec\\)` is deprecated",
    "Experiment logs directory .* exists and is not empty",
    "The '(train|val|test)_dataloader' does not have many workers",
    "You're resuming from a checkpoint that ended before the epoch ended",  # the datamodule knows where
    "\n'hydra/launcher/.*' is validated against ConfigStore schema with the same name",  # ours are whole without it
    "Found [0-9]+ module\\(s\\) in eval mode at the start of training",  # the queue's encoder
)


def errors_in_one_line(task: Callable[[DictConfig], T]) -> Callable[[DictConfig], T | None]:
    """Print a user's mistake, however deep it was raised, as one line and exit with status 2.

    In a multirun whatever goes wrong in a job is printed, and the other jobs still run; the job has no results
    then, which SweepTable tells at the end. A job of several ranks ends all the same, lest the others wait for it.
    """
    _ignore_what_is_expected()  # of Hydra, which comes before the task

    @functools.wraps(task)
    def wrapped(config: DictConfig) -> T | None:
        _ignore_what_is_expected()  # once more, ahead of the filters of what has been imported since
        if not is_first_process():  # what there is to say, rank 0 says
            logging.getLogger("simcse_pl").setLevel(logging.WARNING)
        try:
            for name in _missing(OmegaConf.to_container(config)):
                raise UserError(f"{name} is missing: add {name}=VALUE (--help says what it is)")
            return task(config)
        except Exception as error:
            mistake = next((cause for cause in _causes(error) if _is_the_users(cause)), None)
            goes_on = HydraConfig.get().mode == RunMode.MULTIRUN and not is_one_of_several()
            if mistake is not None:
                print(f"error: {one_line(mistake)}", file=sys.stderr)
            elif goes_on:
                traceback.print_exc()
            else:
                raise
            if goes_on:
                return None
            raise SystemExit(USER_ERROR_STATUS) from None

    return wrapped


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
        error = error.__cause__


def _ignore_what_is_expected() -> None:
    for message in _EXPECTED:
        warnings.filterwarnings("ignore", message)
