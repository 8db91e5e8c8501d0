"""Start `train` and `evaluate` with the options of the command line, or from Python with a list of options.

On the command line, `simcse_pl.__main__` runs this file as a script. `main` calls Hydra, which composes the config,
makes the folder of each job, and calls `_run_job`. `_run_job` calls `_run`, and prints an error. `_run` checks the
options, and calls the function of the command in `_WORK`. From Python, `_call` does what `main` and `_run_job` do, but
raises an error. Jobs and ranks in processes of their own start as `python -m simcse_pl.cli --config-name COMMAND`.

This file imports neither torch nor Lightning, which take seconds: --help and most mistakes do without them.
"""

import atexit
import logging
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig

from simcse_pl import __version__
from simcse_pl.config import CONF, config_folders, with_row
from simcse_pl.option_checks import check_options
from simcse_pl.results import TrainingRun
from simcse_pl.run_folder import CURVES_FILE
from simcse_pl.utils.code import locate, optional
from simcse_pl.utils.errors import USER_ERROR_STATUS, SweepError, UserError, exception_chain, first_line
from simcse_pl.utils.files import cached_rows
from simcse_pl.utils.processes import end_with_parent, is_first_process, is_one_of_several
from simcse_pl.utils.terminal import end_quietly, hydra_text, prepare_output, report_error

DEBUG_OPTION = "debug=true"
_WORK = {"train": "simcse_pl.train_job.train", "evaluate": "simcse_pl.lab.evaluate.evaluate"}
_CONFIG_DIR = ("--config-dir", "-cd")
_WITH_VALUE = (
    *("--config-name", "-cn", "--config-path", "-cp", *_CONFIG_DIR, "--package", "-p"),
    *("--cfg", "-c", "--info", "-i", "--experimental-rerun"),
)
_FLAGS = (
    *(*_WITH_VALUE, "--help", "-h", "--help-all", "--hydra-help", "--version"),
    *("--multirun", "-m", "--run", "-r", "--resolve", "--shell-completion", "-sc"),
)
_EXPECTED_WARNINGS = (
    ".*isinstance\\(treespec, LeafSpec\\)` is deprecated",
    "(Experiment logs|Checkpoint) directory .* exists and is not empty",
    "The '(train|val|test)_dataloader' does not have many workers",
    "You're resuming from a checkpoint that ended before the epoch ended",  # the datamodule continues there
    "\n'hydra/launcher/.*' is validated against ConfigStore schema with the same name",  # ours are complete
    "The number of training batches .* is smaller than the logging interval",
    "Found [0-9]+ module\\(s\\) in eval mode at the start of training",  # the queue's encoder
)


def train(
    options: Sequence[str] = (),
    config_dir: str | Path | None = None,
    rows: Iterable[str | Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """Train an encoder as `simcse train OPTIONS` does, and return what results.json has.

    Args:
        options: options as on the command line, such as `["setting=unsupervised", "data=text", "data.train=my.txt"]`.
        config_dir: a folder with configs of your own, as `--config-dir`.
        rows: sentences, pairs or triplets to train on, in place of `data.train`. They are kept in the user's cache. A
            column, such as that of the scores, has its position as its name: `data.score_column=2`.

    Returns:
        The content of results.json, with `folder`, the run's folder, and `score`, the metric that chose the checkpoint.

    Raises:
        UserError: an option is wrong, or `rows` is one text or a data frame.
    """
    if isinstance(rows, str) or hasattr(rows, "columns"):  # iterating would give characters, or names of columns
        raise UserError("rows: give a list of sentences or of rows, such as frame.values; of a file, data.train=FILE")
    if rows is not None:
        options = ["data=text", *options, f"data.train={hydra_text(str(cached_rows(rows)))}"]
    results = _call("train", options, config_dir)
    return results | {"score": TrainingRun.model_validate(results).best_score}


def evaluate(options: Sequence[str], config_dir: str | Path | None = None) -> dict[str, Any]:
    """Measure an encoder as `simcse evaluate OPTIONS` does, and return what results.json has, with `folder`.

    Args:
        options: options as on the command line, such as `["encoder=outputs/RUN/encoder", "tasks=[STS-B]"]`.
        config_dir: a folder with configs of your own, as `--config-dir`.

    Raises:
        UserError: an option is wrong.
    """
    return _call("evaluate", options, config_dir)


def main(command: str = "train") -> None:
    """Run a command with the options in sys.argv. Print an error in one line, or its traceback with `debug=true`.

    The exit status is 2 for a user's mistake, 1 for any other failure, and 130 for Ctrl-C.
    """
    if "LOCAL_RANK" in os.environ or any(word.startswith("hydra.job.num=") for word in sys.argv):
        end_with_parent()  # only ranks and jobs do: a run in the background outlives its shell
    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise exceptions rather than print them
    prepare_output()
    logging.raiseExceptions = False  # no traceback if the log cannot be written
    _ignore_expected_warnings()
    options, flags = _options_and_flags(command, sys.argv[1:])
    sys.argv[1:] = ["--config-name", command, *flags, *options]  # ranks start with the same arguments
    disable_hydra_output_on_other_ranks()
    composed = options
    try:
        composed = [*options, *(_search_path(value) for flag, value in pairwise(flags) if flag in _CONFIG_DIR)]
        _check_words(command, options, flags)
        if printed := _printed_config(command, composed, flags):
            print(printed, flush=True)
            return
        hydra.main(config_path=str(CONF), config_name=command, version_base="1.3")(_run_job)()
        sys.stdout.flush()
    except BrokenPipeError:  # `_run_job` reports that of a job
        end_quietly()
    except BaseException as error:
        if _is_interrupt(error):
            print("interrupted", file=sys.stderr)
            sys.exit(128 + signal.SIGINT)
        if not isinstance(error, Exception):
            raise
        shown = readable(error, command, given=composed)
        sys.exit(report_error(shown, DEBUG_OPTION in sys.argv, DEBUG_OPTION))


def _options_and_flags(command: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options and the flags of a command line, as Hydra takes them; a flag's value is the next item.

    A list with spaces, which a shell splits, is one option. A word that is no option is the encoder to evaluate.
    """
    options, flags = list[str](), list[str]()
    for word in words:
        is_open = options and sum(map(options[-1].count, "[{")) > sum(map(options[-1].count, "]}"))
        if word[:1] == "~" or ("=" in word and word[0] != "-"):
            options.append(word)
        elif is_open and word not in _FLAGS:
            options[-1] += f" {word}"
        elif command == "evaluate" and word[:1] not in ("", "-") and (flags or [""])[-1] not in _WITH_VALUE:
            options.append(f"encoder={word}")
        else:
            flags += word.split("=", 1)
    return list(map(_for_hydra, options)), flags


def _check_words(command: str, options: Sequence[str], flags: Sequence[str]) -> None:
    """Raise UserError for a second encoder, and for a flag that Hydra does not have, such as `--lr`."""
    if len(encoders := [option for option in options if option.startswith("encoder=")]) > 1:
        names = ",".join(option.removeprefix("encoder=") for option in encoders)
        raise UserError(f"{command} measures one encoder: write -m encoder={names}")
    for flag, value in pairwise([*flags, "VALUE"]):
        if flag.startswith("--") and flag not in _FLAGS:
            name = next(iter(optional("tools.options.search")(flag, command)), "NAME")
            option = f"{name}={'VALUE' if value.startswith('-') else value}"
            raise UserError(f"{flag}: options have no dashes: write {option} (simcse options finds others)")


def _printed_config(command: str, options: Sequence[str], flags: Sequence[str]) -> str | None:
    """Return what --help, --help-all, --version or `--cfg job` prints; None without them."""
    if "--version" in flags:  # Hydra would print its own version
        return f"simcse_pl {__version__}"
    values = dict(pairwise(flags))
    if {"-h", "--help", "--help-all"} & {*flags}:
        return str(optional("tools.options.help_text")(command, options, "--help-all" in flags))
    if values.get("--cfg", values.get("-c")) == "job":
        package = values.get("--package", values.get("-p"))
        words = [word for flag, word in pairwise(["", *flags]) if word[:1] != "-" and flag not in _WITH_VALUE]
        return str(optional("tools.options.config_text")(command, [*options, *words], package, "--resolve" in flags))
    return None


def _call(command: str, options: Sequence[str], config_dir: str | Path | None) -> dict[str, Any]:
    """Run a command in this process, which may be a Hydra app of the user's, in a folder that Hydra prepares."""
    options = list(map(_for_hydra, options))
    if config_dir is not None:
        options.append(_search_path(config_dir))

    def results_or_error(config: DictConfig) -> dict[str, Any] | Exception:  # Hydra would print an exception
        before = random.getstate()
        from pytorch_lightning.utilities.seed import isolate_rng  # slow to import, and draws from `random`

        random.setstate(before)
        seeds = {name: os.environ.pop(name, None) for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")}
        with isolate_rng(include_cuda=False):  # starting CUDA here would keep it from forked ranks
            try:
                return _run(command, config) | {"folder": Path(HydraConfig.get().runtime.output_dir)}
            except Exception as error:
                return readable(error, command, config)
            finally:
                for name, seed in seeds.items():
                    os.environ.pop(name, None)
                    if seed is not None:
                        os.environ[name] = seed

    users = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"), warnings.catch_warnings():
            _ignore_expected_warnings()
            run = GlobalHydra.instance().hydra.run  # type: ignore[union-attr]
            done = run(command, results_or_error, options, with_log_configuration=False).return_value
    except Exception as error:
        done = readable(error, command, given=options)
    finally:
        GlobalHydra.instance().hydra = users
    if isinstance(done, Exception):
        raise done from done.__cause__
    results: dict[str, Any] = done
    return results


def _search_path(folder: str | Path) -> str:
    return f"hydra.searchpath={[f'file://{Path(folder).absolute()}', *config_folders()]}"


def _run(command: str, config: DictConfig) -> dict[str, Any]:
    """Run a command in the folder that Hydra has made, and return what results.json has."""
    config = with_row(config)
    check_options(config)
    results: dict[str, Any] = locate(_WORK[command])(config)
    return results


def _run_job(config: DictConfig) -> float | None:
    """Run a job of the command line, and print an error as `main` does.

    In a multirun, the other jobs still run, and MultirunReport lists the job as failed; but it ends at a SweepError, a
    mistake of the first job before training, and an error on one of several ranks, because the others would wait.
    """
    _ignore_expected_warnings()  # once more, because modules imported since have added filters
    if not is_first_process():
        logging.getLogger("simcse_pl").setLevel(logging.WARNING)
    runtime = HydraConfig.get()
    command = str(runtime.job.config_name)
    try:
        results = _run(command, config)
        return TrainingRun.model_validate(results).best_score if "best" in results else None
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None  # ends a multirun too
        shown = readable(error, command, config)
        status = report_error(shown, config.debug is True, DEBUG_OPTION)
        if runtime.mode == RunMode.MULTIRUN and not is_one_of_several() and not isinstance(error, SweepError):
            first = command == "train" and runtime.job.num == 0 and not Path(config.run_dir, CURVES_FILE).exists()
            if not first or status != USER_ERROR_STATUS:
                return None
        sys.exit(status)


def _for_hydra(option: str) -> str:
    """Return an option as Hydra takes it: `queue=[]` for `queue=null`, and `data.train="语料.txt"` for `语料.txt`.

    Hydra accepts null in a defaults list only. The folder of the group `local` may be missing, or be in --config-dir
    only. Hydra reads some characters, such as those beyond ASCII, in quotation marks alone.
    """
    group, assigned, choice = option.partition("=")
    if assigned and (group == "local" or (CONF / group).is_dir()):
        return f"{group}=" + ",".join("[]" if part in ("null", "[null]") else part for part in choice.split(","))
    if not assigned or _is_readable(option):
        return option
    return next(filter(_is_readable, (f"{group}={quoted}" for quoted in _quotings(choice))), option)


def _is_readable(option: str) -> bool:
    with suppress(HydraException):
        return bool(OverridesParser.create().parse_override(option))
    return False


def _quotings(choice: str) -> Iterator[str]:
    """Yield ways to quote a value for Hydra: each part of a list, a mapping or a sweep, then the whole text."""
    is_nested = choice[:1] in ("[", "{")
    with suppress(yaml.YAMLError):
        node = yaml.compose(choice if is_nested else f"[{choice}]", yaml.SafeLoader)
        if is_nested:
            yield _written(node)
        elif all(isinstance(part, yaml.ScalarNode) for part in node.value):  # one value, or those of a sweep
            yield ",".join(map(_written, node.value))
    if not is_nested:
        yield hydra_text(choice)


def _written(node: yaml.Node) -> str:
    """Return a value of YAML in Hydra's grammar."""
    if isinstance(node, yaml.SequenceNode):
        return f"[{','.join(map(_written, node.value))}]"
    if isinstance(node, yaml.MappingNode):
        return "{" + ",".join(f"{key.value}: {_written(value)}" for key, value in node.value) + "}"
    plain = node.style is None and _is_readable(f"value={node.value}")
    return str(node.value) if plain else hydra_text(node.value)


def disable_hydra_output_on_other_ranks() -> None:
    """Let Hydra create a folder for rank 0 only, under torchrun and SLURM.

    Lightning does the same for the ranks that it starts. A sweep under torchrun is an error.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ and {"-m", "--multirun"} & {*sys.argv}:
        print("error: a sweep starts the ranks of its jobs itself: run it without torchrun", file=sys.stderr)
        sys.exit(USER_ERROR_STATUS)
    rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
    if rank == "0" or any(argument.startswith("hydra.output_subdir=") for argument in sys.argv):
        return
    sys.argv += ["hydra.output_subdir=null", f"hydra.job.name=rank_{rank}"]
    if not any(argument.startswith("hydra.run.dir=") for argument in sys.argv):  # the default has the rank's own time
        folder = tempfile.mkdtemp(prefix="simcse_pl-rank-")  # where nobody can put a link
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        sys.argv.append(f"hydra.run.dir={folder}")


def _is_interrupt(error: BaseException) -> bool:
    """Return whether Ctrl-C caused an error, which Lightning and OmegaConf may replace."""
    return any(isinstance(cause, KeyboardInterrupt) for cause in exception_chain(error))


def readable(error: Exception, command: str, config: DictConfig | None = None, given: Sequence[str] = ()) -> Exception:
    """Return an error of Hydra, or of a class that it instantiates, as a UserError.

    `config` is None if it was not composed from the `given` options.
    """
    if isinstance(error, InstantiationException) and isinstance(error.__cause__, OSError):
        return error.__cause__
    from simcse_pl.messages import message_of_class, message_of_hydra  # only after an error

    shown: Exception
    if is_one_of_several() and re.search("by peer|remote process exited", str(error)):  # as gloo and NCCL say
        where = "its own error is printed above, or in its log of torchrun or SLURM"
        shown = RuntimeError(f"another rank has ended; {where}: {first_line(error)}")
    elif text := message_of_class(error, config) or message_of_hydra(error, command, given):
        shown = UserError(text)
    else:
        return error
    shown.__cause__ = error
    return shown


def _ignore_expected_warnings() -> None:
    for message in _EXPECTED_WARNINGS:
        warnings.filterwarnings("ignore", message)


if __name__ == "__main__":
    main(sys.argv[2])
