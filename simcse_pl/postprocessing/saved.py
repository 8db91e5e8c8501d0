"""Load a fitted post-processing from its folder."""

from pathlib import Path

from safetensors.torch import load_file

from simcse_pl.postprocessing.post_process import SETTINGS_FILE, TENSORS_FILE, PostProcess
from simcse_pl.postprocessing.remove_components import RemoveComponents
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import read_json

KINDS: dict[str, type[PostProcess]] = {kind.name: kind for kind in (Whitening, RemoveComponents)}


def load(folder: str | Path) -> PostProcess:
    """Load a saved post-processing: fitted, on the CPU.

    Raises:
        UserError: a file does not exist or is damaged.
    """
    settings_path, tensors_path = Path(folder) / SETTINGS_FILE, Path(folder) / TENSORS_FILE
    for path in (settings_path, tensors_path):
        if not path.is_file():
            raise UserError(f"no file {path}: a folder with a saved post-processing has {path.name}")
    settings = read_json(settings_path)
    with reraise_as(f"{settings_path} is damaged", users_too=True):
        postprocess, width = _kind(settings["name"])(**settings["options"]), settings["width"]
        postprocess.check_width(width)
    with reraise_as(f"{tensors_path} is damaged or does not belong to {SETTINGS_FILE}"):
        tensors = load_file(tensors_path)
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            raise ValueError("it contains values that are not finite")
        postprocess.restore(width, tensors)
    postprocess.width = width
    return postprocess


def _kind(name: str) -> type[PostProcess]:
    if name == "flow":
        from simcse_pl.postprocessing.flow import Flow  # its library is slow to import

        return Flow
    return KINDS[name]
