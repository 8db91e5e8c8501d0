"""A checkpoint is there whole, or as it was before."""

from pathlib import Path

import pytest
import torch

from simcse_pl.errors import UserError
from simcse_pl.whole_checkpoints import WholeCheckpoints


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("enforce fail: file write failed")]
)
def test_a_disk_that_is_full_leaves_the_checkpoint_before(tmp_path, monkeypatch, error):
    path, files = tmp_path / "checkpoints" / "last.ckpt", WholeCheckpoints()
    files.save_checkpoint({"step": 1}, path)

    def half(content, where):
        Path(where).write_bytes(b"half")
        raise error

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(UserError, match=f"cannot write {path}: .*; the checkpoint before is whole"):
        files.save_checkpoint({"step": 2}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}
    assert [file.name for file in path.parent.iterdir()] == ["last.ckpt"]
