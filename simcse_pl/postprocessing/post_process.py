"""The base classes of post-processing: fit, transform, save and load; affine maps."""

import importlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import atomic_write, checksums, read_json, unchanged, write_json
from simcse_pl.utils.tensors import as_float64

SETTINGS_FILE = "postprocess.json"
TENSORS_FILE = "postprocess.safetensors"
_CLASSES = {"whitening": "Whitening", "remove_components": "RemoveComponents", "flow": "Flow"}  # by their modules


class PostProcess(ABC):
    """A map of embeddings that is learned from embeddings without labels. The encoder does not change.

    Computations are in float64 on the device of the embeddings, or on the CPU if that device has no
    float64. The result has the dtype and the device of the input.

    Args:
        options: the subclass's arguments, which `load` passes to it again.

    Attributes:
        name: the kind, as in files and tables.
        options: the constructor's arguments that the map depends on.
        width: the number of dimensions that it was fitted on; None before `fit`.
    """

    name: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.width: int | None = None

    @property
    def fitted(self) -> bool:
        """Return whether this has been fitted, or loaded from a folder."""
        return self.width is not None

    def fit(self, x: Tensor) -> Self:
        """Learn the map from the embeddings `x` [n, dim], in place of an earlier one.

        Raises:
            UserError: `x` has fewer than two rows, or a value that is not finite.
        """
        self.width = None
        self.check_width(x.shape[1])
        if len(x) < 2 or not x.isfinite().all():
            raise UserError(f"{self.name}: give at least 2 embeddings to fit on, of finite values")
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
            write_json(new / SETTINGS_FILE, settings | checksums(new, TENSORS_FILE))

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return the fitted tensors by name."""

    @abstractmethod
    def restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        """Set the fitted tensors, or raise any exception if they do not fit the options and the width."""

    @abstractmethod
    def learn(self, x: Tensor) -> None:
        """Learn the map from `x` [n, dim], at least two embeddings, which `fit` has checked."""

    @abstractmethod
    def map(self, x: Tensor) -> Tensor:
        """Return the map of `x` [n, dim] in float64, as float64 [n, k]."""


class AffinePostProcess(PostProcess):
    """A post-processing that maps x to (x - mean) matrix.

    Attributes:
        mean: [dim], float64.
        matrix: [dim, k], float64.
    """

    mean: Tensor
    matrix: Tensor

    def map(self, x: Tensor) -> Tensor:
        """Return (x - mean) matrix."""
        return (x - self.mean.to(x.device)) @ self.matrix.to(x.device)

    def tensors(self) -> dict[str, Tensor]:
        """Return `mean` and `matrix`."""
        return {"mean": self.mean, "matrix": self.matrix}

    def restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        """Set `mean` and `matrix`, if their shapes fit the width."""
        self.mean, self.matrix = tensors["mean"].double().view(width), tensors["matrix"].double().view(width, -1)


def principal_directions(x: Tensor, center: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return the eigenvectors of the covariance of `x` [n, dim], in descending order of variance.

    The covariance is divided by n - 1. Directions whose variance may be due to rounding are left out: variances
    of at most

        max( eps_x^2 mean ||x||^2, dim eps_64 lambda_1 )

    with the machine epsilons eps_x of the dtype of `x` and eps_64 of float64, and the largest variance lambda_1.
    At most n - 1 directions are kept, or n if `center` is False.

    Args:
        x: the embeddings, at least two.
        center: subtract the mean first.

    Returns:
        In float64: the mean [dim] (0 if not centered), the variances [rank], and the directions as
        columns [dim, rank].
    """
    n, dim = x.shape
    rows = as_float64(x)
    mean = rows.mean(dim=0) if center else torch.zeros_like(rows[0])
    covariance = (rows - mean).T @ (rows - mean) / (n - 1)
    variances, directions = torch.linalg.eigh(covariance)
    of_embeddings = torch.finfo(x.dtype).eps ** 2 * rows.square().sum(dim=1).mean()
    of_eigenvalues = dim * torch.finfo(variances.dtype).eps * variances[-1]
    above_rounding = variances > torch.maximum(of_embeddings, of_eigenvalues)
    kept = above_rounding.nonzero().flatten().flip(0)[: n - 1 if center else n]
    return mean, variances[kept], directions[:, kept]


def load(folder: str | Path) -> PostProcess:
    """Load a saved post-processing: fitted, on the CPU; raise UserError if a file does not exist or is damaged."""
    settings_path, tensors_path = Path(folder) / SETTINGS_FILE, Path(folder) / TENSORS_FILE
    with reraise_as(f"{settings_path} is missing, damaged or of another version; fit it again", users_too=True):
        settings = read_json(settings_path)
        class_name = _CLASSES[settings["name"]]
        module = importlib.import_module(f"simcse_pl.postprocessing.{settings['name']}")
        postprocess: PostProcess = getattr(module, class_name)(**settings["options"])
        postprocess.check_width(settings["width"])
    belongs = reraise_as(f"{tensors_path} is missing, damaged or does not belong to {SETTINGS_FILE}")
    with belongs, unchanged(settings_path):
        postprocess.restore(settings["width"], load_file(tensors_path))
    postprocess.width = settings["width"]
    return postprocess
