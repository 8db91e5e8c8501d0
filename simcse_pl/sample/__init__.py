"""The small data that comes with the project, written by hand for it; README.md beside this file tells of it."""

from pathlib import Path


def path(name: str) -> str:
    """The path of one of its files: nli.csv, sts_dev.tsv or sts_test.tsv."""
    return str(Path(__file__).parent / name)
