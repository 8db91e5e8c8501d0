"""Loading a fitted post-processing from the folder that it was saved in."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from simcse_pl.postprocessing.flow import Flow
from simcse_pl.postprocessing.post_process import SETTINGS_FILE, TENSORS_FILE, PostProcess
from simcse_pl.postprocessing.remove_components import RemoveComponents
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError, first_line
from simcse_pl.utils.files import read_json

KINDS: dict[str, type[PostProcess]] = {kind.name: kind for kind in (Whitening, RemoveComponents, Flow)}


def load(folder: str | Path) -> PostProcess:
    """A post-processing as it was when it was saved: of its class, fitted, on the CPU.

    Raises:
        UserError: no such folder, no post-processing in it, or one that is damaged.
    """
    settings, tensors = Path(folder) / SETTINGS_FILE, Path(folder) / TENSORS_FILE
    for path in (settings, tensors):
        if not path.is_file():
            raise UserError(f"no file {path}: a folder with a saved post-processing has {path.name}")
    postprocess, width = _read_settings(settings)
    try:
        fitted = load_file(tensors)
        if not all(torch.isfinite(tensor).all() for tensor in fitted.values()):
            raise ValueError("it holds numbers that are not finite")
        postprocess.restore(width, fitted)
    except Exception as error:  # safetensors and torch each have their own
        raise UserError(f"{tensors} is damaged or does not belong to {settings.name}: {first_line(error)}") from error
    return postprocess


def _read_settings(path: Path) -> tuple[PostProcess, int]:
    """What `path` says: the post-processing as it was constructed, and the width that it was fitted on."""
    match read_json(path):
        case {"name": str(name), "width": int(width), "options": dict(options)} if name in KINDS and width > 0:
            try:
                return KINDS[name](**options), width
            except (ValueError, TypeError) as error:
                raise UserError(f"{path} is damaged: {first_line(error)}") from error
    raise UserError(f"{path} is damaged: it must hold name (one of {', '.join(KINDS)}), width and options")
