"""Each kind of encoder is loaded by its name."""

import gzip

import pytest
import torch
import torch.nn.functional as F

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import load_encoder
from simcse_pl.models.settings import EncoderSettings
from tests.conftest import SENTENCES
from tests.models.test_lightning_checkpoint import save


@pytest.mark.parametrize("name", ["encoder", "folder.ckpt", "folder.txt", "best.ckpt"])
def test_folders_of_any_name_and_checkpoints_load_the_same(name, make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", max_length=20)
    path = str(tmp_path / name)
    save(encoder, path) if name == "best.ckpt" else encoder.save_pretrained(path)
    assert torch.equal(load_encoder(path).encode(SENTENCES), encoder.encode(SENTENCES))
    options = {"pooling": "layers_0_2", "num_layers": 2, "max_length": 9, "normalize": True}
    loaded, expected = load_encoder(path, **options), SentenceEncoder.from_pretrained(make_model("bert"), **options)
    assert torch.equal(loaded.encode(SENTENCES), expected.encode(SENTENCES))
    assert loaded.settings == EncoderSettings("layers_0_2", "none", 9, True) and loaded.dim == 32
    assert loaded.backbone.config.num_hidden_layers == 2


@pytest.mark.parametrize("ending", ["txt", "vec.gz"])
def test_word_vectors_are_loaded_with_their_options(ending, tmp_path):
    path, counts = tmp_path / f"vectors.{ending}", tmp_path / "counts.txt"
    content = b"a 1 0 2\nman 0 1 0\n"
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    counts.write_text("a 999\nman 1\n")
    torch.testing.assert_close(load_encoder(str(path)).encode(["A man"]), torch.tensor([[0.5, 0.5, 1.0]]))
    weighted = torch.tensor([[0.001 / 1.0, 0.5, 2 * 0.001 / 1.0]])  # 0.001 / (0.001 + p)
    encoder = load_encoder(str(path), word_counts=str(counts), normalize=True)
    torch.testing.assert_close(encoder.encode(["A man"]), F.normalize(weighted), atol=1e-6, rtol=1e-6)
