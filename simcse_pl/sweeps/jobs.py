"""Jobs of a sweep: describe a job, and find the results of a job that has finished."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from simcse_pl.results.run_files import RESULTS_FILE
from simcse_pl.utils.errors import SweepError, reraise_as

OF_TWO_GROUPS = ("setting/model", "method/model", "size/sweep")  # what the choices of two groups have together


def finished_job(folder: Path, overrides: Sequence[str]) -> dict[str, Any] | None:
    """Return the results of the job with these options if it has finished, or None.

    Raises:
        SweepError: the folder holds the results of a job with other options.
        UserError: the results are damaged.
    """
    path = folder / RESULTS_FILE
    if not path.is_file():
        return None
    with reraise_as(f"{path} is damaged, remove it to run the job again"):
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        options = given_options(results["overrides"])
        best_score(results)
    if options != (given := given_options(overrides)):
        there, here = (" ".join(sorted({*a} - {*b})) or "none" for a, b in ((options, given), (given, options)))
        raise SweepError(f"{folder} holds a finished job (only there: {there}; only here: {here}): choose another one")
    return results


def given_options(options: Sequence[str]) -> list[str]:
    """Return the options of a run, sorted, without those that do not change it."""
    return sorted(option for option in options if not option.lstrip("+").startswith(("resume=", "debug=", "jobs=")))


def best_score(results: Mapping[str, Any]) -> float:
    """Return the metric that chose the checkpoint, at the best step; NaN (null in JSON) if training diverged."""
    score = results["best"][results.get("monitor", "spearman")]
    return math.nan if score is None else float(score)


def job_arguments(hydra: Any, folder: Path) -> list[str]:
    """Return the command line that runs one job of a sweep, with its part of Hydra's config, in its folder."""
    flags = ["--config-name", hydra.job.config_name]
    for source in hydra.runtime.config_sources:
        if flag := {"main": "--config-path", "command-line": "--config-dir"}.get(source.provider):
            flags += [flag, source.path]
    of_job = {"hydra.run.dir": folder, "hydra.sweep.dir": hydra.sweep.dir, "hydra.job.num": hydra.job.num}
    return [
        *flags,
        *hydra.overrides.task,
        *(option for option in hydra.overrides.hydra if not option.startswith(("hydra.mode=", "hydra.sweep.dir="))),
        *(f'{name}="{value}"' if name.endswith("dir") else f"{name}={value}" for name, value in of_job.items()),
    ]


def describe_job(config: DictConfig, hydra: Any) -> dict[str, Any]:
    """Return the part of results.json that describes a run: choices of groups, options, seed, and row of the sweep."""
    sweep = config.get("sweep") or {}
    place = {name: sweep.get(name) for name in ("table", "column", "row")}
    choices = {group: choice for group, choice in hydra.runtime.choices.items() if "hydra" not in group}
    return {
        "choices": {group: choice for group, choice in choices.items() if choice and group not in OF_TWO_GROUPS},
        "overrides": list(hydra.overrides.task),
        "seed": config.seed,
        "sweep": place | {"size": config.get("size")} if sweep else None,
    }
