"""The folder of a training run: the names of its files, what describes a job, and whether it has finished."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_pl.results import TrainingRun, read_shape
from simcse_pl.utils.errors import SweepError, reraise_as

if TYPE_CHECKING:
    from omegaconf import DictConfig

RESULTS_FILE = "results.json"
CURVES_FILE = "metrics.csv"
CURVES_FIGURE = "curves.png"
WANDB_FILE = "wandb_run.json"  # the id of the folder's W&B run
RESOLVED_CONFIG = Path("config") / "resolved.yaml"  # config.yaml with all interpolations resolved
OF_TWO_GROUPS = ("setting/model", "method/model", "size/sweep")  # what the choices of two groups have together


def job_folders(folder: Path) -> list[Path]:
    """Return the folders of a sweep's jobs in the order of their numbers."""
    numbered = (path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir())
    return sorted(numbered, key=lambda path: int(path.name))


def run_label(folder: Path) -> str:
    """Return the default label of a run: the last two parts of its path."""
    return "/".join(folder.absolute().parts[-2:])


def encoder_label(name: str) -> str:
    """Return the default label of an encoder: that of the run which saved it, or its name."""
    path = Path(name)
    return run_label(path.parent) if path.name == "encoder" and path.is_dir() else name


def describe_job(config: "DictConfig", hydra: Any) -> dict[str, Any]:
    """Return the part of results.json that describes a run: choices of groups, options, seed, and row of the sweep."""
    sweep = config.get("sweep") or {}
    cell = {name: sweep.get(name) for name in ("table", "column", "row")}
    choices = {group: choice for group, choice in hydra.runtime.choices.items() if "hydra" not in group}
    sources = (source for source in hydra.runtime.config_sources if "command-line" in source.provider)
    folders = (source.path for source in sources if source.schema == "file")
    return {
        "choices": {group: choice for group, choice in choices.items() if choice and group not in OF_TWO_GROUPS},
        "overrides": list(hydra.overrides.task),
        "config_dir": next(folders, None),
        "seed": config.seed,
        "sweep": cell | {"size": config.get("size")} if sweep else None,
    }


def finished_job(folder: Path, overrides: Sequence[str]) -> dict[str, Any] | None:
    """Return the results of the job with these options if it has finished, or None.

    Raises:
        SweepError: the folder holds the results of a job with other options.
        UserError: the results are damaged.
    """
    path = folder / RESULTS_FILE
    if not path.is_file():
        return None
    with reraise_as(f"{path} is damaged, remove it to run the job again", users_too=True):
        run = read_shape(TrainingRun, path)
    options, given = deciding_options(run.overrides), deciding_options(overrides)
    if options != given:
        there, here = (" ".join(sorted({*a} - {*b})) or "none" for a, b in ((options, given), (given, options)))
        raise SweepError(
            f"{folder} holds a finished job, only there: {there}; only here: {here}: choose another folder"
        )
    return run.content()


def deciding_options(options: Sequence[str], *others: str) -> list[str]:
    """Return the options of a run, sorted, without those that do not change it, or begin with one of `others`."""
    left_out = ("resume=", "debug=", "jobs=", *others)
    return sorted(option for option in options if not option.lstrip("+").startswith(left_out))
