"""Jobs of a sweep: what a job is, and that one which has run already is not run again."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from simcse_pl.results.run_files import RESULTS_FILE
from simcse_pl.utils.errors import SweepError, UserError, first_line


def finished_job(folder: Path, overrides: Sequence[str]) -> dict[str, Any] | None:
    """The results of a job that has run to its end, or None.

    Args:
        folder: the job's.
        overrides: the options that it was given.

    Raises:
        SweepError: the folder holds another job: it is another sweep's, or has other jobs than now.
        UserError: it holds a damaged one.
    """
    path = folder / RESULTS_FILE
    if not path.is_file():
        return None
    try:
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        ran = results["overrides"]
        options = given_options(ran)
        best_score(results)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({first_line(error)}): remove it to run the job anew") from error
    if options != given_options(overrides):
        raise SweepError(f"{folder} holds another job ({' '.join(ran)}): choose another folder")
    return results


def given_options(options: Sequence[str]) -> list[str]:
    """The options of a run in one order, without those that say to go on, or to show a traceback."""
    return sorted(option for option in options if not option.lstrip("+").startswith(("resume=", "debug=")))


def best_score(results: Mapping[str, Any]) -> float:
    """Spearman's correlation on dev of the checkpoint that was kept; nan, which JSON has as null, where there is none.

    Args:
        results: of a job.
    """
    score = results["best"]["spearman"]
    return math.nan if score is None else float(score)


def job_arguments(hydra: Any, folder: Path) -> list[str]:
    """The command line that runs a sweep's job by itself, and in its own folder.

    Args:
        hydra: Hydra's own config in that job.
        folder: the job's.
    """
    flags = ["--config-name", hydra.job.config_name]
    for source in hydra.runtime.config_sources:
        if flag := {"main": "--config-path", "command-line": "--config-dir"}.get(source.provider):
            flags += [flag, source.path]
    own = {"hydra.run.dir": folder, "hydra.sweep.dir": hydra.sweep.dir, "hydra.job.num": hydra.job.num}
    return [
        *flags,
        *hydra.overrides.task,
        *(option for option in hydra.overrides.hydra if not option.startswith(("hydra.mode=", "hydra.sweep.dir="))),
        *(f'{name}="{value}"' if name.endswith("dir") else f"{name}={value}" for name, value in own.items()),
    ]


def describe_job(config: DictConfig, hydra: Any) -> dict[str, Any]:
    """What results.json says of a run besides its scores: choices of groups, options given, seed, and its sweep's row.

    Args:
        config: of the run.
        hydra: Hydra's own.
    """
    sweep = config.get("sweep")
    choices = {group: choice for group, choice in hydra.runtime.choices.items() if "hydra" not in group}
    return {
        "choices": {group: choice for group, choice in choices.items() if choice},
        "overrides": list(hydra.overrides.task),
        "seed": config.seed,
        "sweep": {
            "table": sweep.get("table"),
            "column": sweep.get("column"),
            "row": sweep.get("row"),
            "size": config.size,
        }
        if sweep
        else None,
    }
