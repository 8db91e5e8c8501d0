"""The base class of post-processing: fit, transform, save and load."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from safetensors.torch import load_file, save_file
from torch import Tensor

from simcse_pl.utils.code import locate
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write, finish_write, read_json, write_json
from simcse_pl.utils.tensors import as_float64
from simcse_pl.utils.types import Checked

POSTPROCESS_FILES = SETTINGS_FILE, TENSORS_FILE = "postprocess.json", "postprocess.safetensors"
_CLASSES = {"whitening": "linear.Whitening", "remove_components": "linear.RemoveComponents", "flow": "flow.Flow"}


class PostProcess(Checked, ABC):
    """A map of embeddings that is learned from embeddings without labels. The encoder does not change.

    Computations are in float64 on the device of the embeddings, or on the CPU if that device has no
    float64. The result has the dtype and the device of the input.

    Args:
        options: the subclass's arguments, which `load` passes to it again.

    Attributes:
        name: the kind, as in files and tables.
        is_affine: whether the map of x is (x - mean) matrix, by the two tensors of these names.
        options: the constructor's arguments that the map depends on.
        width: the number of dimensions that it was fitted on; None before `fit`.
        warnings: why its maps may mislead, of all fits.
    """

    name: ClassVar[str]
    is_affine: ClassVar[bool] = False

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.width: int | None = None
        self.warnings: list[str] = []

    @property
    def fitted(self) -> bool:
        """Return whether this has been fitted, or loaded from a folder."""
        return self.width is not None

    def fit(self, x: Tensor) -> Self:
        """Learn the map from the embeddings `x` [n, dim] in place of an earlier one.

        Raises:
            UserError: fewer than two of them are different.
        """
        if (x == x[:1]).all():
            raise UserError(f"{self.name}: all embeddings that it is fitted on are equal: fit on different sentences")
        self.learn(x.detach())
        self.width = x.shape[1]
        return self

    def transform(self, x: Tensor) -> Tensor:
        """Map the embeddings `x` [n, dim] to [n, k], after `fit`. n may be 0."""
        self.check_width(x.shape[1])
        return self.map(as_float64(x.detach())).to(x)

    def check_width(self, width: int) -> None:
        """Check that embeddings of `width` dimensions can be mapped.

        Raises:
            UserError: this was fitted on embeddings of another width.
        """
        if self.fitted and width != self.width:
            raise UserError(f"{self.name} was fitted on {self.width} dimensions, but the embeddings have {width}")

    def save(self, folder: str | Path) -> None:
        """Write postprocess.json (kind, width and options) and postprocess.safetensors into `folder`, atomically."""
        settings = {"name": self.name, "width": self.width, "options": self.options}
        with atomic_write(folder, last=SETTINGS_FILE) as new:
            save_file({name: tensor.cpu().contiguous() for name, tensor in self.tensors().items()}, new / TENSORS_FILE)
            write_json(new / SETTINGS_FILE, settings)

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return the fitted tensors by name."""

    @abstractmethod
    def restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        """Set the fitted tensors, or raise any exception if they do not fit the options and the width."""

    @abstractmethod
    def learn(self, x: Tensor) -> None:
        """Learn the map from `x` [n, dim], at least two embeddings."""

    @abstractmethod
    def map(self, x: Tensor) -> Tensor:
        """Return the map of `x` [n, dim] in float64, as float64 [n, k]."""


def load(folder: str | Path) -> PostProcess:
    """Load a saved post-processing: fitted, on the CPU; raise UserError if a file does not exist or is damaged."""
    finish_write(folder)
    settings_path, tensors_path = Path(folder) / SETTINGS_FILE, Path(folder) / TENSORS_FILE
    with reraise_as(f"{settings_path} is missing, damaged or of another version; fit it again", users_too=True):
        settings = read_json(settings_path)
        make = locate(f"simcse_pl.postprocessing.{_CLASSES[settings['name']]}")
        postprocess: PostProcess = make(**settings["options"])
    with reraise_as(f"{tensors_path} is missing, damaged or does not belong to {SETTINGS_FILE}"):
        postprocess.restore(settings["width"], load_file(tensors_path))
    postprocess.width = settings["width"]
    return postprocess
