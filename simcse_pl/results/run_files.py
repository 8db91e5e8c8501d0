"""What a run leaves in its folder, and a sweep in its own, by name."""

from pathlib import Path

RESULTS_FILE = "results.json"
CURVES_FILE = "metrics.csv"
WANDB_FILE = "wandb_run.json"  # which W&B run is the folder's
RESOLVED_CONFIG = Path("config") / "resolved.yaml"  # config.yaml with every reference replaced by its value
VALIDATION_PREFIXES = ("val/", "geometry/")  # how the names of what is measured at a validation begin


def job_folders(folder: Path) -> list[Path]:
    """The folders of a sweep's jobs, in their order."""
    numbered = (path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir())
    return sorted(numbered, key=lambda path: int(path.name))
