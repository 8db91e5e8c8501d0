"""How Lightning writes checkpoints here: whole, or not at all."""

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from simcse_pl.utils.errors import WriteError
from simcse_pl.utils.files import atomic_write


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and moves it there, so that a kill or a full disk leaves the one before."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Lightning calls this on rank 0.

        Raises:
            WriteError: the system does not let it be written.
        """
        path = Path(path)
        try:
            with atomic_write(path.parent) as new, (new / path.name).open("wb") as file:
                torch.save(checkpoint, file)  # to a path, torch itself writes, and does not say why it cannot
        except WriteError as error:
            raise WriteError(path, error.why, "the checkpoint before is whole: resume=auto goes on") from error
