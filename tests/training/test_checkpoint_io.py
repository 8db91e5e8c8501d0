import pytest
import torch

from simcse_pl.training.checkpoint_io import AtomicCheckpointIO
from simcse_pl.utils.errors import WriteError


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path, monkeypatch):
    path, files = tmp_path / "checkpoints" / "last.ckpt", AtomicCheckpointIO()
    files.save_checkpoint({"step": 1}, path)

    def half(content, file):
        file.write(b"half")
        try:
            raise OSError(28, "No space left on device")
        except OSError:
            raise RuntimeError("enforce fail: unexpected pos 576 vs 534") from None  # as torch does

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(WriteError, match=f"cannot write {path}: No space left on device; the previous"):
        files.save_checkpoint({"step": 2}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}
    assert [file.name for file in path.parent.iterdir()] == ["last.ckpt"]
