"""The entry point of `train` and `evaluate`: one-line errors, and early checks of options."""

import functools
import logging
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import hydra._internal.hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simcse_pl.config.loader import CheckedLoader
from simcse_pl.config.type_checks import check_types, named_in_full
from simcse_pl.results.run_files import RESOLVED_CONFIG
from simcse_pl.sweeps.resolvers import in_sweep
from simcse_pl.utils.command_line import Parser, allow_own_code, report_error
from simcse_pl.utils.errors import USER_ERROR_STATUS, SweepError, UserError, did_you_mean, exception_chain, first_line
from simcse_pl.utils.ranks import is_first_process, is_one_of_several
from simcse_pl.utils.validation import check_seed

Task = Callable[[DictConfig], Any]

_DEBUG_OPTION = "debug=true"

_EXPECTED_WARNINGS = (
    ".*isinstance\\(treespec, LeafSpec\\)` is deprecated",
    "(Experiment logs|Checkpoint) directory .* exists and is not empty",
    "The '(train|val|test)_dataloader' does not have many workers",
    "You're resuming from a checkpoint that ended before the epoch ended",  # the datamodule continues there
    "\n'hydra/launcher/.*' is validated against ConfigStore schema with the same name",  # ours are complete
    "The number of training batches .* is smaller than the logging interval",
    "Found [0-9]+ module\\(s\\) in eval mode at the start of training",  # the queue's encoder
)


def run(main: Callable[[], Any]) -> None:
    """Run a function that `hydra.main` decorates. Print an error in one line, or its traceback with `debug=true`.

    The exit status is 2 for a user's mistake, 1 for any other failure, and 130 for Ctrl-C.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise exceptions rather than print them
    hydra._internal.hydra.ConfigLoaderImpl = CheckedLoader  # type: ignore[attr-defined]
    logging.raiseExceptions = False  # no traceback if the log cannot be written
    allow_own_code()  # the classes that a config names
    try:
        _check_flags()
        main()
        sys.stdout.flush()
    except BaseException as error:
        if _is_interrupt(error):
            print("interrupted", file=sys.stderr)
            raise SystemExit(128 + signal.SIGINT) from None
        if not isinstance(error, Exception):
            raise
        raise SystemExit(report_error(_translate(error), _DEBUG_OPTION in sys.argv, _DEBUG_OPTION)) from None


def disable_hydra_output_on_other_ranks() -> None:
    """Let Hydra create a folder for rank 0 only, under torchrun and SLURM. Call this before Hydra.

    Lightning does the same for the ranks that it starts. A sweep under torchrun is an error.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ and {"-m", "--multirun"} & {*sys.argv}:
        print("error: a sweep starts the ranks of its jobs itself: run it without torchrun", file=sys.stderr)
        raise SystemExit(USER_ERROR_STATUS)
    rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
    if rank == "0" or any(argument.startswith("hydra.output_subdir=") for argument in sys.argv):
        return
    sys.argv += ["hydra.output_subdir=null", f"hydra.job.name=rank_{rank}"]
    if not any(argument.startswith("hydra.run.dir=") for argument in sys.argv):  # the default has the rank's own time
        sys.argv.append(f"hydra.run.dir={tempfile.gettempdir()}/simcse_pl-ranks-{os.getuid()}")


def _is_interrupt(error: BaseException) -> bool:
    """Return whether Ctrl-C caused an error, which Lightning and OmegaConf may replace."""
    return any(isinstance(one, KeyboardInterrupt) for one in exception_chain(error))


def _check_flags() -> None:
    """Report an unknown flag in one line, and move flags before the options for Hydra."""
    parser = get_args_parser()

    def error(message: str) -> NoReturn:
        flag = message.removeprefix("unrecognized arguments: ").partition("=")[0]
        if flag.startswith("--") and not did_you_mean(flag, parser._option_string_actions):
            message = f"write options as name=value, without dashes: {flag}"
        Parser.error(parser, message)  # type: ignore[arg-type]

    parser.error = error  # type: ignore[assignment, method-assign]
    options = parser.parse_intermixed_args().overrides
    sys.argv[1:] = [flag for flag in sys.argv[1:] if flag not in options] + options


def _translate(error: Exception, config: DictConfig | None = None) -> Exception:
    """Return an error of Hydra, or of a class that Hydra instantiates, as a UserError."""
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return error
    cause, place = error.__cause__, str(error).rpartition("full_key: ")[2]
    if not isinstance(error, InstantiationException):
        mistake = UserError(first_line(error))
    elif isinstance(cause, OSError):
        return cause
    elif config is not None and isinstance(cause, UserError):
        mistake = UserError(named_in_full(str(cause), config, place))
    elif "'simcse_pl." in first_line(error):  # a bug of ours
        return error
    else:
        mistake = UserError(f"{place}: {first_line(cause or error)}")
    mistake.__cause__ = error
    return mistake


def report_errors(task: Task) -> Task:
    """Check the config before a task, and print an error of a job as `run` does.

    In a multirun, the other jobs still run, and SweepTable lists the job as failed. A SweepError ends the multirun, as
    does an error on one of several ranks, because the others would wait.
    """
    _ignore_expected_warnings()

    @functools.wraps(task)
    def wrapped(config: DictConfig) -> Any:
        _ignore_expected_warnings()  # before the filters of modules imported since
        if not is_first_process():
            logging.getLogger("simcse_pl").setLevel(logging.WARNING)
        try:
            if missing := sorted(OmegaConf.missing_keys(config)):
                raise UserError(f"{missing[0]} is missing: add {missing[0]}=VALUE (--help describes it)")
            check_types(config)
            check_seed(config.seed)
            return task(config)
        except Exception as error:
            if _is_interrupt(error):
                raise KeyboardInterrupt from None  # ends a multirun too
            status = report_error(_translate(error, config), config.debug is True, _DEBUG_OPTION)
            runtime = HydraConfig.get()
            in_multirun = runtime.mode == RunMode.MULTIRUN and not is_one_of_several()
            if in_multirun and not isinstance(error, SweepError):
                return None
            alone = runtime.mode == RunMode.RUN and not in_sweep()  # a sweep counts jobs by folder
            if status == USER_ERROR_STATUS and alone and is_first_process():
                _remove_unused(runtime)
            raise SystemExit(status) from None

    return wrapped


def _remove_unused(runtime: Any) -> None:
    """Remove the folder of a run that did not start, if it holds only what Hydra wrote."""
    folder = Path(runtime.runtime.output_dir)
    config = folder / (runtime.output_subdir or "")
    own = {config / name for name in ("config.yaml", "hydra.yaml", "overrides.yaml")}
    own |= {folder / RESOLVED_CONFIG, folder / f"{runtime.job.name}.log"}
    if folder == Path.cwd() or {path for path in folder.rglob("*") if not path.is_dir()} - own:
        return
    for path in own:
        path.unlink(missing_ok=True)
    with suppress(OSError):  # an empty folder of the user's
        config.rmdir()
        folder.rmdir()


def _ignore_expected_warnings() -> None:
    for message in _EXPECTED_WARNINGS:
        warnings.filterwarnings("ignore", message)
