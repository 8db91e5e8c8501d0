"""How Lightning writes checkpoints here: whole, or not at all."""

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from simcse_pl.errors import UserError, one_line
from simcse_pl.files import written_whole


class WholeCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint beside its place and moves it there, so that a kill or a full disk leaves the one before."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Lightning calls this on rank 0.

        Raises:
            UserError: it cannot be written.
        """
        path = Path(path)
        try:
            with written_whole(path.parent) as new:
                torch.save(checkpoint, new / path.name)
        except (OSError, RuntimeError) as error:  # torch's own writer raises the latter when the disk is full
            raise UserError(f"cannot write {path}: {one_line(error)}; the checkpoint before is whole") from error
