"""The paper's official checkpoints, with small models under their names, against transformers' own pooler."""

import shutil

import pytest
import torch
from transformers import AutoModel

from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import SENTENCES


@pytest.fixture
def released(make_model, tmp_path):
    """A folder under one of the names, with the pooler that the released files have."""

    def make(name, architecture="bert", form="safetensors"):
        folder = shutil.copytree(make_model(architecture), tmp_path / name)
        model = AutoModel.from_pretrained(folder, add_pooling_layer=True)
        model.save_pretrained(folder)
        if form == "bin":
            torch.save(model.state_dict(), folder / "pytorch_model.bin")
            (folder / "model.safetensors").unlink()
        return folder, model.eval()

    return make


@pytest.mark.parametrize(
    ("name", "architecture", "form"),
    [
        ("sup-simcse-bert-base-uncased", "bert", "bin"),
        ("sup-simcse-roberta-large", "roberta", "safetensors"),
        ("unsup-simcse-bert-base-uncased", "bert", "safetensors"),
    ],
)
def test_supervised_models_keep_their_head_and_others_drop_it(name, architecture, form, released):
    folder, model = released(name, architecture, form)
    encoder = SentenceEncoder.from_pretrained(folder)
    for sentence, vector in zip(SENTENCES, encoder.encode(SENTENCES), strict=True):
        with torch.no_grad():
            output = model(**encoder.tokenizer(sentence, return_tensors="pt"))
        expected = output.last_hidden_state[:, 0] if name.startswith("unsup") else output.pooler_output
        torch.testing.assert_close(vector, expected[0], atol=1e-5, rtol=0)


def test_a_given_pooling_and_saved_settings_come_first(released, make_model):
    folder, _ = released("sup-simcse-bert-base-uncased")
    assert SentenceEncoder.from_pretrained(folder, pooling="mean").head == "none"
    saved = folder.parent / "unsup-simcse-bert-large-uncased"
    SentenceEncoder.from_pretrained(make_model("bert"), pooling="max").save_pretrained(saved)
    assert SentenceEncoder.from_pretrained(saved).pooling == "max"
