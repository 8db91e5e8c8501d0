"""Each kind of encoder is loaded by its name."""

import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import load_encoder
from simcse_pl.models.settings import EncoderSettings
from tests.conftest import SENTENCES
from tests.helpers import save_checkpoint


@pytest.mark.parametrize("name", ["encoder", "folder.ckpt", "folder.txt", "best.ckpt"])
def test_folders_of_any_name_and_checkpoints_load_the_same(name, make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", max_length=20)
    path = str(tmp_path / name)
    save_checkpoint(encoder, path) if name == "best.ckpt" else encoder.save_pretrained(path)
    assert torch.equal(load_encoder(path).encode(SENTENCES), encoder.encode(SENTENCES))
    options = {"pooling": "layers_0_2", "num_layers": 2, "max_length": 9, "normalize": True}
    loaded, expected = load_encoder(path, **options), SentenceEncoder.from_pretrained(make_model("bert"), **options)
    assert torch.equal(loaded.encode(SENTENCES), expected.encode(SENTENCES))
    assert loaded.settings == EncoderSettings("layers_0_2", "none", 9, True) and loaded.dim == 32
    assert loaded.backbone.config.num_hidden_layers == 2
