"""Each kind of encoder is loaded by its name; options of another kind are errors."""

import gzip

import pytest
import torch
import torch.nn.functional as F

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.encoder_files import EncoderSettings
from simcse_pl.models.load import load_encoder
from simcse_pl.models.word_vectors import WordVectors
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.models.test_lightning_checkpoint import save

VECTORS = "a 1 0 2\nman 0 1 0\nsnow 3 -1 0.5\n"


@pytest.fixture
def transformer(make_model, tmp_path):
    """An encoder as a folder and as a checkpoint."""
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", max_length=20)
    encoder.save_pretrained(tmp_path / "encoder")
    save(encoder, tmp_path / "best.ckpt")
    return encoder


@pytest.mark.parametrize("name", ["encoder", "best.ckpt"])
def test_folders_and_checkpoints_load_the_same(name, transformer, tmp_path):
    assert torch.equal(load_encoder(f"{tmp_path}/{name}").encode(SENTENCES), transformer.encode(SENTENCES))
    options = {"pooling": "layers_0_1", "num_layers": 2, "max_length": 9, "normalize": True}
    loaded = load_encoder(f"{tmp_path}/{name}", **options)
    assert loaded.settings == EncoderSettings("layers_0_1", "none", 9, True) and loaded.dim == 32
    assert loaded.backbone.config.num_hidden_layers == 2


def test_a_folder_may_have_the_name_of_a_file(transformer, tmp_path):
    for name in ("best.of.ckpt", "notes.txt"):
        transformer.save_pretrained(tmp_path / name)
        assert torch.equal(load_encoder(f"{tmp_path}/{name}").encode(SENTENCES), transformer.encode(SENTENCES))


@pytest.mark.parametrize("ending", ["txt", "vec.gz"])
def test_word_vectors_are_averaged(ending, tmp_path):
    path = tmp_path / f"vectors.{ending}"
    path.write_bytes(gzip.compress(VECTORS.encode()) if ending.endswith("gz") else VECTORS.encode())
    encoder = load_encoder(str(path))
    assert encoder.dim == 3
    expected = torch.tensor([[0.5, 0.5, 1.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(encoder.encode(["A man", "?"], batch_size=1), expected)
    torch.testing.assert_close(load_encoder(str(path), normalize=True).encode(["A man"]), F.normalize(expected[:1]))


def test_word_counts_reach_the_word_vectors(tmp_path):
    (tmp_path / "vectors.txt").write_text(VECTORS)
    (tmp_path / "counts.txt").write_text("a 90\nman 10\n")
    names = str(tmp_path / "vectors.txt"), str(tmp_path / "counts.txt")
    expected = WordVectors.from_file(names[0], word_counts=names[1]).encode(SENTENCES)
    assert torch.equal(load_encoder(names[0], word_counts=names[1]).encode(SENTENCES), expected)
    assert not torch.equal(load_encoder(names[0]).encode(SENTENCES), expected)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vectors.txt", {"pooling": "mean"}, "^pooling=mean: vectors.txt is a file of word vectors, which takes no"),
        ("vectors.vec.gz", {"num_layers": 3}, "^num_layers=3: vectors.vec.gz is a file of word vectors"),
        ("encoder", {"word_counts": "c.txt"}, "^word_counts=c.txt: .* encoder is a transformer"),
        ("nowhere.ckpt", {}, "no file nowhere.ckpt"),
        ("nowhere.txt", {}, "no file nowhere.txt"),
        ("nowhere", {"pooling": "mean"}, "model nowhere: no such folder"),
    ],
)
def test_options_of_another_kind_and_unknown_names_are_one_line(name, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as error:
        load_encoder(name, **options)
    assert "\n" not in str(error.value)
