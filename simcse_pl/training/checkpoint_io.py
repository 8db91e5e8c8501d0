"""Atomic writes of Lightning's checkpoints."""

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from simcse_pl.utils.errors import WriteError
from simcse_pl.utils.files import atomic_write


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write checkpoints atomically: the previous one survives a kill or a full disk.

    If the temporary folder is on another file system, Lightning copies over the old checkpoint.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint; raise WriteError if the system cannot write the file."""
        path = Path(path)
        try:
            with atomic_write(path.parent) as new, (new / path.name).open("wb") as file:
                torch.save(checkpoint, file)  # given a path, torch does not say why it cannot write
        except WriteError as error:
            raise WriteError(path, error.why, "the previous checkpoint is intact: continue with resume=auto") from error
