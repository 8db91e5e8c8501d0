"""What every post-processing has in common: fit, transform, and the two files that it is saved as."""

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
    """A map of embeddings that is learned from embeddings, without labels, while the encoder stays as it is.

    The arithmetic is in float64, on the device of the embeddings, or on the CPU where that device has no float64.
    The result has the type and the device of the input.

    Args:
        options: what the subclass was constructed with, as `load` will construct it again.

    Attributes:
        name: of the kind, as files and tables have it.
        options: the constructor's arguments that the map depends on.
        width: of the embeddings it was fitted on; None before that.
    """

    name: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.width: int | None = None

    @property
    def fitted(self) -> bool:
        """Whether `fit` has been called, or this came out of a saved folder."""
        return self.width is not None

    def fit(self, x: Tensor) -> Self:
        """Learn the map from the embeddings `x` [n, dim]; an earlier fit is forgotten.

        Raises:
            UserError: embeddings that are no finite matrix of floats, or too few of them.
        """
        self._check_matrix(x)
        self.width = None
        self.check_width(x.shape[1])
        if len(x) < 2:
            raise UserError(f"{self.name}: {len(x)} embeddings are too few to fit on; give at least 2")
        self._fit(x.detach())
        self.width = x.shape[1]
        return self

    def transform(self, x: Tensor) -> Tensor:
        """The embeddings `x` [n, dim] after the map, [n, k]; n may be 0.

        Raises:
            UserError: before `fit`, or embeddings that are no finite matrix of floats as wide as those fitted on, or
                whose map is out of the range of their type.
        """
        self._check_fitted(x)
        z = self._transform(as_float64(x.detach())).to(x)
        if not torch.isfinite(z).all():
            raise UserError(f"{self.name}: what it makes of the embeddings is out of {x.dtype}'s range; give float64")
        return z

    def check_width(self, width: int) -> None:
        """Refuse embeddings of `width` dimensions, before any is there.

        Raises:
            UserError: it was fitted on embeddings of another width.
        """
        if self.fitted and width != self.width:
            raise UserError(f"{self.name} was fitted on {self.width} dimensions, and was given {width}")

    def save(self, folder: str | Path) -> None:
        """Write postprocess.json (kind, width and options) and postprocess.safetensors into `folder`.

        Both are written whole beside their places and then moved there, the settings last.

        Raises:
            UserError: before `fit`.
        """
        if not self.fitted:
            raise UserError(f"{self.name}: fit it before it is saved")
        settings = {"name": self.name, "width": self.width, "options": self.options}
        with atomic_write(folder, last=SETTINGS_FILE) as new:
            save_file(self.tensors(), new / TENSORS_FILE)
            (new / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    def tensors(self) -> dict[str, Tensor]:
        """Return what was fitted, by name, on the CPU."""
        return {name: tensor.detach().cpu().contiguous() for name, tensor in self._tensors().items()}

    def restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        """Take over what `save` wrote; `load` calls it.

        Raises:
            Exception: tensors that do not fit these options and this width.
        """
        self._restore(width, tensors)
        self.width = width
        self.check_width(width)

    @abstractmethod
    def _fit(self, x: Tensor) -> None:
        """Learn from at least two finite embeddings."""

    @abstractmethod
    def _transform(self, x: Tensor) -> Tensor:
        """Map float64 embeddings of the right width."""

    @abstractmethod
    def _tensors(self) -> dict[str, Tensor]:
        """What was fitted."""

    @abstractmethod
    def _restore(self, width: int, tensors: dict[str, Tensor]) -> None:
        """The reverse of `_tensors`."""

    def _check_matrix(self, x: Tensor) -> None:
        if x.ndim != 2 or not x.shape[1] or not x.is_floating_point():
            raise UserError(f"{self.name} takes floats [n, dim], and was given {x.dtype} {list(x.shape)}")
        if not torch.isfinite(x).all():
            row = int((~torch.isfinite(x)).any(dim=1).nonzero()[0])
            raise UserError(f"{self.name}: embedding {row} holds a number that is not finite")

    def _check_fitted(self, x: Tensor) -> None:
        if not self.fitted:
            raise UserError(f"{self.name}: fit it on embeddings first")
        self._check_matrix(x)
        self.check_width(x.shape[1])
