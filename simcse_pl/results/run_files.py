"""The names of files in the folders of runs and sweeps."""

from pathlib import Path

RESULTS_FILE = "results.json"
CURVES_FILE = "metrics.csv"
WANDB_FILE = "wandb_run.json"  # the id of the folder's W&B run
RESOLVED_CONFIG = Path("config") / "resolved.yaml"  # config.yaml with all interpolations resolved
VALIDATION_PREFIXES = ("val/", "geometry/")  # of metrics that are measured at validations


def job_folders(folder: Path) -> list[Path]:
    """Return the folders of a sweep's jobs in the order of their numbers."""
    numbered = (path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir())
    return sorted(numbered, key=lambda path: int(path.name))


def run_label(folder: Path) -> str:
    """Return the default label of a run: the last two parts of its path."""
    return "/".join(folder.absolute().parts[-2:])
