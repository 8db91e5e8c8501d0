"""YAML files that runs leave behind."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from simcse_pl.utils.errors import UserError


def read_yaml(file: Path) -> Any:
    """Return a file's content as an OmegaConf config, with references unresolved; an empty one if there is no file.

    Raises:
        UserError: the file cannot be read as YAML.
    """
    if not file.is_file():
        return OmegaConf.create()
    try:
        return OmegaConf.load(file)
    except Exception as error:  # OmegaConf and PyYAML have many
        raise UserError(f"{file} is damaged: {' '.join(str(error).split()) or type(error).__name__}") from error
