"""Encoders from folders and Lightning checkpoints: equal to the bit, safe to load, one line for damaged files."""

import shutil
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from safetensors.torch import save_file

from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.heads import HEADS
from simcse_pl.models.saved_encoder import CHECKPOINT_KEY, checkpoint_entry
from simcse_pl.models.settings import EncoderSettings
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw
from tests.tiny_models import ARCHITECTURES


def save(encoder, path):
    """A checkpoint as Lightning's trainer writes it."""
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.strategy.connect(module)
    trainer.save_checkpoint(path)
    return encoder.eval()


@pytest.fixture
def checkpoint(make_model, tmp_path):
    """A checkpoint of an encoder with a head, and its content."""
    path = tmp_path / "best.ckpt"
    save(SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp", max_length=20), path)
    return path, torch.load(path, weights_only=True)


@pytest.mark.parametrize("form", ["folder", "checkpoint"])
@pytest.mark.parametrize(
    ("architecture", "head"), [*((name, "mlp") for name in ARCHITECTURES), *(("bert", head) for head in HEADS)]
)
def test_a_moved_encoder_equals_the_trained_one_to_the_bit(form, architecture, head, make_model, tmp_path):
    folder = shutil.copytree(make_model(architecture), tmp_path / "model")
    encoder = SentenceEncoder.from_pretrained(
        folder, pooling="layers_0_2", head=head, max_length=20, num_layers=2, dropout=0.2, normalize=True
    )
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(torch.randn_like(weight) * 0.01)
    encoder.save_pretrained(tmp_path / "here") if form == "folder" else save(encoder, tmp_path / "here")
    shutil.rmtree(folder)
    shutil.move(tmp_path / "here", tmp_path / "there")
    load = SentenceEncoder.from_pretrained if form == "folder" else SentenceEncoder.from_checkpoint
    before = torch.get_rng_state()
    loaded = load(tmp_path / "there")
    assert form == "folder" or torch.equal(torch.get_rng_state(), before)
    assert loaded.settings == encoder.settings == EncoderSettings("layers_0_2", head, 20, True) and not loaded.training
    for (name, mine), theirs in zip(encoder.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs), name
    assert torch.equal(encoder.encode(SENTENCES), loaded.encode(SENTENCES))
    inputs = encoder.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.random.fork_rng():
        trained = encoder.train()(inputs)
    assert torch.equal(trained, loaded.train()(inputs))  # dropout and the head as well


def test_binary_and_empty_files_of_a_tokenizer_are_stored(make_model, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "simcse_pl.models.saved_encoder.save_tokenizer", lambda own, folder: own.save_pretrained(folder)
    )
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    files = {"spiece.model": bytes(range(256)), "merges.txt": b"", "vocab.txt": "é\u2028字\r\n".encode()}

    class Tokenizer:
        def save_pretrained(self, folder):
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)

    torch.save(checkpoint_entry(encoder.backbone, Tokenizer(), encoder.settings), tmp_path / "entry")
    entry = torch.load(tmp_path / "entry", weights_only=True)
    del entry["files"]["config.json"]
    assert {name: text.encode("latin-1") for name, text in entry["files"].items()} == files


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 4}, "^num_layers=4: .*best.ckpt has 3 layers"),
        ({"pooling": "layers_4"}, "^pooling=layers_4: the model has layers 1 to 3"),
        ({"max_length": 65}, "^max_length=65"),
    ],
)
def test_options_that_do_not_fit_are_named(options, message, checkpoint):
    with pytest.raises(UserError, match=message):
        SentenceEncoder.from_checkpoint(checkpoint[0], **options)


def test_options_replace_the_saved_settings(checkpoint):
    options = {"pooling": "mean", "max_length": 12, "normalize": True, "template": "so {sentence}", "truncate_dim": 8}
    loaded = SentenceEncoder.from_checkpoint(checkpoint[0], **options)
    assert {name: getattr(loaded.settings, name) for name in options} == options and loaded.dim == 8


def without(content, left_out):
    return {name: value for name, value in content.items() if name != left_out}


def changed(content, **change):
    return content | {CHECKPOINT_KEY: content[CHECKPOINT_KEY] | change}


def with_files(content, **files):
    return changed(content, files=content[CHECKPOINT_KEY]["files"] | files)


def with_weights(content, **weights):
    return content | {"state_dict": content["state_dict"] | weights}


BIAS = "encoder.backbone.embeddings.LayerNorm.bias"
DAMAGES = {
    "of another project": (lambda c: without(c, CHECKPOINT_KEY), "does not contain an encoder: another project or an"),
    "not a dict": (lambda c: [1, 2], "does not contain an encoder"),
    "no weights": (lambda c: without(c, "state_dict"), "is damaged: 'state_dict'"),
    "no files": (lambda c: changed(c, files=None), "is damaged: "),
    "odd settings": (lambda c: changed(c, settings={"pooling": 3}), "is damaged: .* must have pooling, head"),
    "no config": (lambda c: changed(c, files={"tokenizer.json": "{}"}), "is damaged: .*config.json"),
    "odd config": (lambda c: with_files(c, **{"config.json": "{"}), "is damaged: .*config.json"),
    "odd tokenizer": (lambda c: with_files(c, **{"tokenizer.json": "{"}), "is damaged: "),
    "a weight missing": (
        lambda c: c | {"state_dict": without(c["state_dict"], BIAS)},
        "its weights lack embeddings.LayerNorm.bias \\(1 missing\\)",
    ),
    "a weight of another shape": (lambda c: with_weights(c, **{BIAS: torch.ones(3)}), "do not fit its config"),
    "a weight that is no tensor": (lambda c: with_weights(c, **{BIAS: "x"}), "do not fit its config"),
    "a head's weight missing": (
        lambda c: c | {"state_dict": without(c["state_dict"], "encoder.projection.0.bias")},
        "the weights of its projection head do not fit",
    ),
    **{
        f"a file named {name!r}": (lambda c, name=name: changed(c, files={name: "x"}), "is damaged: ")
        for name in ("../escaped", "/tmp/escaped", "..", "", "a\0b", "e" * 300, 3)
    },
    "a file that is no text": (lambda c: changed(c, files={"a": "\u0100"}), "is damaged: "),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_content_is_one_line_and_leaves_no_files(damage, checkpoint, tmp_path, monkeypatch):
    path, content = checkpoint
    change, message = DAMAGES[damage]
    torch.save(change(content), path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as error:
        SentenceEncoder.from_checkpoint(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert [file.name for file in tmp_path.rglob("*")] == ["best.ckpt"] and not Path("/tmp/escaped").exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "safetensors", "folder"])
def test_files_that_are_not_checkpoints_are_one_line(damage, checkpoint):
    path, _ = checkpoint
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "safetensors":
        save_file({"a": torch.ones(1)}, path)
    else:
        path.write_bytes(content[:-1000] if damage == "cut" else b"")
    message = f"no file {path}" if damage == "folder" else f"^{path} is not a checkpoint, is damaged, or contains"
    with pytest.raises(UserError, match=message):
        SentenceEncoder.from_checkpoint(path)
