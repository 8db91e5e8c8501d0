"""Folders of any name and checkpoints are loaded by their path."""

import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import load_encoder
from simcse_pl.models.settings import EncoderSettings
from tests.conftest import SENTENCES
from tests.helpers import save_checkpoint


@pytest.mark.parametrize("name", ["folder.ckpt", "folder.txt", "best.ckpt"])
def test_the_options_replace_the_saved_ones(name, make_model, tmp_path):
    path = str(tmp_path / name)
    saved = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", max_length=20)
    save_checkpoint(saved, path) if name == "best.ckpt" else saved.save_pretrained(path)
    options = {"pooling": "layers_0_2", "num_layers": 2, "max_length": 9, "normalize": True}
    loaded, expected = load_encoder(path, **options), SentenceEncoder.from_pretrained(make_model("bert"), **options)
    assert torch.equal(loaded.encode(SENTENCES), expected.encode(SENTENCES))
    assert loaded.settings == EncoderSettings("layers_0_2", "none", 9, True)
