"""The folder of a training run: the names of its files, and what describes a job."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

RESULTS_FILE = "results.json"
CURVES_FILE = "metrics.csv"
SWEEP_FILE = "multirun.yaml"  # by Hydra, in the folder of a sweep: its config, with the options of all jobs
CURVES_FIGURE = "curves.png"
WANDB_FILE = "wandb_run.json"  # the id of the folder's W&B run
RESOLVED_CONFIG = Path("config") / "resolved.yaml"  # config.yaml with all interpolations resolved
OF_LOGS = ("run_name", "resume", "debug", "jobs", "keep_checkpoints", "logger", "log_every")  # options without effect
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


def study_name(overrides: Sequence[str]) -> str:
    """Return the name of the study of a search, to which all trials with these options belong."""
    left_out = ("resume=", "debug=", "jobs=", "search.trial=")
    return " ".join(sorted(option for option in overrides if not option.lstrip("+").startswith(left_out)))
