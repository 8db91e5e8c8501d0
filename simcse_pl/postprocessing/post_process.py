"""The base class of post-processing: fit, transform and save."""

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors.torch import save_file
from torch import Tensor

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.tensors import as_float64

SETTINGS_FILE = "postprocess.json"
TENSORS_FILE = "postprocess.safetensors"


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
            UserError: `x` is not a finite matrix of floats, or has fewer than two rows.
        """
        self.width = None
        self._check(x)
        if len(x) < 2:
            raise UserError(f"{self.name}: {len(x)} embeddings are too few to fit on; give at least 2")
        self.learn(x.detach())
        self.width = x.shape[1]
        return self

    def transform(self, x: Tensor) -> Tensor:
        """Map the embeddings `x` [n, dim] to [n, k]. n may be 0.

        Raises:
            UserError: this is not fitted, `x` is not a finite matrix of floats of the fitted width, or the
                result overflows its dtype.
        """
        if not self.fitted:
            raise UserError(f"{self.name}: fit it on embeddings first")
        self._check(x)
        z = self.map(as_float64(x.detach())).to(x)
        if not torch.isfinite(z).all():
            raise UserError(f"{self.name}: the result overflows {x.dtype}; pass the embeddings in float64")
        return z

    def check_width(self, width: int) -> None:
        """Check that embeddings of `width` dimensions can be mapped.

        Raises:
            UserError: this was fitted on embeddings of another width.
        """
        if self.fitted and width != self.width:
            raise UserError(f"{self.name} was fitted on {self.width} dimensions, but the embeddings have {width}")

    def save(self, folder: str | Path) -> None:
        """Write postprocess.json (kind, width and options) and postprocess.safetensors into `folder`, atomically.

        Raises:
            UserError: this is not fitted.
        """
        if not self.fitted:
            raise UserError(f"{self.name}: fit it before saving it")
        settings = {"name": self.name, "width": self.width, "options": self.options}
        with atomic_write(folder, last=SETTINGS_FILE) as new:
            save_file({name: tensor.cpu().contiguous() for name, tensor in self.tensors().items()}, new / TENSORS_FILE)
            (new / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

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
        """Return the map of `x` [n, dim] in float64, which `transform` has checked, as float64 [n, k]."""

    def _check(self, x: Tensor) -> None:
        if x.ndim != 2 or not x.shape[1] or not x.is_floating_point():
            raise UserError(f"{self.name} takes floats [n, dim], not {x.dtype} {list(x.shape)}")
        if not torch.isfinite(x).all():
            row = int((~torch.isfinite(x)).any(dim=1).nonzero()[0])
            raise UserError(f"{self.name}: embedding {row} has a value that is not finite")
        self.check_width(x.shape[1])
