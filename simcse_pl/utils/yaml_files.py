"""Read the YAML files of runs."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from simcse_pl.utils.errors import UserError


def read_yaml(file: Path) -> Any:
    """Return a file as an unresolved config, empty if there is no file; raise UserError if it is not valid."""
    if not file.is_file():
        return OmegaConf.create()
    try:
        return OmegaConf.load(file)
    except Exception as error:  # PyYAML's and OmegaConf's have no base class in common
        raise UserError(f"{file} is damaged: {' '.join(str(error).split()) or type(error).__name__}") from error
