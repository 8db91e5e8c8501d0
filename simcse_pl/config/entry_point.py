"""What `train` and `evaluate` share: errors are one line, and options are checked before anything is built."""

import functools
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import hydra._internal.hydra
import hydra.core.utils
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException
from hydra.types import RunMode
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simcse_pl.config import CONF
from simcse_pl.config.loader import CheckedLoader
from simcse_pl.config.suggestions import cannot_build, not_a_flag, place_of
from simcse_pl.config.type_checks import check_types, named_in_full
from simcse_pl.results.run_files import RESOLVED_CONFIG
from simcse_pl.sweeps.resolvers import in_sweep
from simcse_pl.utils.command_line import Parser
from simcse_pl.utils.distributed import is_first_process, is_one_of_several
from simcse_pl.utils.errors import (
    USER_ERROR_STATUS,
    SweepError,
    UserError,
    check_seed,
    did_you_mean,
    exception_chain,
    first_line,
)
from simcse_pl.utils.exit_status import report_error
from simcse_pl.utils.files import atomic_write

T = TypeVar("T")

_TO_DEBUG = "debug=true"

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
    """Run a front door: a user's mistake is one line and status 2, any other failure one line and status 1, Ctrl-C 130.

    With `debug=true` among the options, whatever it is keeps its traceback.

    Args:
        main: what `hydra.main` has made; its config has its name.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises what it would print over several lines
    hydra._internal.hydra.ConfigLoaderImpl = CheckedLoader  # type: ignore[attr-defined]
    hydra.core.utils._save_config = _save_config  # type: ignore[assignment]
    logging.raiseExceptions = False  # a log that cannot be written is no reason for a traceback
    try:
        _read_command_line(main.__name__)
        main()
        sys.stdout.flush()
    except BaseException as error:
        if _interrupted(error):
            print("interrupted", file=sys.stderr)
            raise SystemExit(128 + signal.SIGINT) from None
        if not isinstance(error, Exception):
            raise
        raise SystemExit(report_error(_in_our_words(error), _TO_DEBUG in sys.argv, _TO_DEBUG)) from None


def _interrupted(error: BaseException) -> bool:
    """Whether it was Ctrl-C: Lightning makes status 1 of it, and a library amid whose work it comes, its own error."""
    return any(isinstance(one, KeyboardInterrupt) for one in exception_chain(error))


def _save_config(config: DictConfig, name: str, folder: Path) -> None:
    """In the place of Hydra's, which leaves half a file where the disk is full."""
    with atomic_write(folder) as new:
        (new / name).write_text(OmegaConf.to_yaml(config), encoding="utf-8")


def _read_command_line(config_name: str) -> None:
    """Refuse what Hydra would, in one line; and put flags before the options, which it wants not to be mixed."""
    parser = get_args_parser()

    def error(message: str) -> NoReturn:
        _, _, unknown = message.partition("unrecognized arguments: ")
        flag = unknown.partition(" ")[0]
        if flag.startswith("--") and not did_you_mean(flag.partition("=")[0], parser._option_string_actions):
            loader = CheckedLoader(create_config_search_path(str(CONF)))
            message = not_a_flag(flag, dict.fromkeys(loader.names(config_name, [], RunMode.RUN)))
        Parser.error(parser, message)  # type: ignore[arg-type]

    parser.error = error  # type: ignore[assignment, method-assign]
    given = parser.parse_intermixed_args()
    if given.experimental_rerun:
        raise UserError("--experimental-rerun would run whatever code the file holds; give the options again")
    sys.argv[1:] = [flag for flag in sys.argv[1:] if flag not in given.overrides] + given.overrides


def _in_our_words(error: Exception, config: DictConfig | None = None) -> Exception:
    """What Hydra, or a library's class that it builds, says is wrong, as a mistake of the user's."""
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return error
    if not isinstance(error, InstantiationException):
        mistake = UserError(first_line(error))
    elif isinstance(error.__cause__, OSError):
        return error.__cause__
    elif config is not None and isinstance(error.__cause__, UserError):
        mistake = UserError(named_in_full(str(error.__cause__), config, place_of(error)))
    elif "'simcse_pl." in first_line(error):  # a class of ours says itself whose mistake it is
        return error
    else:
        mistake = UserError(cannot_build(error))
    mistake.__cause__ = error
    return mistake


def report_errors(
    *given_to: Callable[..., Any],
) -> Callable[[Callable[[DictConfig], T]], Callable[[DictConfig], T | None]]:
    """Print whatever goes wrong in a job, as `run` does; in a multirun let the other jobs run.

    A job that has failed has no results, which SweepTable tells at the end. A job of several ranks ends all of it, lest
    the others wait for it.

    Args:
        given_to: what the options at the config's top are given to, which says their types.
    """
    _ignore_what_is_expected()  # of Hydra, which comes before the task

    def decorate(task: Callable[[DictConfig], T]) -> Callable[[DictConfig], T | None]:
        @functools.wraps(task)
        def wrapped(config: DictConfig) -> T | None:
            _ignore_what_is_expected()  # once more, ahead of the filters of what has been imported since
            if not is_first_process():  # what there is to say, rank 0 says
                logging.getLogger("simcse_pl").setLevel(logging.WARNING)
            try:
                for name in _missing(OmegaConf.to_container(config)):
                    raise UserError(f"{name} is missing: add {name}=VALUE (--help says what it is)")
                check_types(config, *given_to)
                check_seed(config.seed)
                return task(config)
            except Exception as error:
                if _interrupted(error):
                    raise KeyboardInterrupt from None  # which ends a multirun too
                status = report_error(_in_our_words(error, config), config.debug is True, _TO_DEBUG)
                alone = HydraConfig.get().mode == RunMode.RUN and not in_sweep()  # a sweep counts jobs by folder
                if status == USER_ERROR_STATUS and alone and is_first_process():
                    _remove_unused(HydraConfig.get())
                in_multirun = HydraConfig.get().mode == RunMode.MULTIRUN and not is_one_of_several()
                if in_multirun and not isinstance(error, SweepError):
                    return None
                raise SystemExit(status) from None  # of which Hydra says nothing more

        return wrapped

    return decorate


def _remove_unused(runtime: Any) -> None:
    """Remove the folder of a run that never began, if it holds only the config and the log that Hydra wrote."""
    folder = Path(runtime.runtime.output_dir)
    config = folder / (runtime.output_subdir or "")
    own = {config / name for name in ("config.yaml", "hydra.yaml", "overrides.yaml")}
    own |= {folder / RESOLVED_CONFIG, folder / f"{runtime.job.name}.log"}
    if folder == Path.cwd() or {path for path in folder.rglob("*") if not path.is_dir()} - own:
        return
    for path in own:
        path.unlink(missing_ok=True)
    with suppress(OSError):  # it holds a folder of the user's
        config.rmdir()
        folder.rmdir()


def _missing(node: Any, name: str = "") -> Iterator[str]:
    """The options that the config leaves to the user, written ???."""
    if node == MISSING:
        yield name
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _missing(value, f"{name}.{key}" if name else str(key))


def _ignore_what_is_expected() -> None:
    for message in _EXPECTED:
        warnings.filterwarnings("ignore", message)
