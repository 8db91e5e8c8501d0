"""What a run leaves in its folder, and a sweep in its own, by name."""

from pathlib import Path

RESULTS_FILE = "results.json"
CURVES_FILE = "metrics.csv"
RESOLVED_CONFIG = Path("config") / "resolved.yaml"  # config.yaml with every reference replaced by its value


def job_folders(folder: Path) -> list[Path]:
    """The folders of a sweep's jobs, in their order."""
    numbered = (path for path in folder.iterdir() if path.name.isdecimal() and path.is_dir())
    return sorted(numbered, key=lambda path: int(path.name))
