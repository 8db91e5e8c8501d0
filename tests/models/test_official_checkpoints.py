"""The paper's official checkpoints, with small models under their names, against transformers' own pooler."""

import shutil

import pytest
import torch
from transformers import AutoModel

from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import SENTENCES


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("sup-simcse-bert-base-uncased", "bert"),
        ("sup-simcse-roberta-large", "roberta"),
        ("unsup-simcse-bert-base-uncased", "bert"),
    ],
)
def test_supervised_models_keep_their_head_and_others_drop_it(name, architecture, make_model, tmp_path):
    folder = shutil.copytree(make_model(architecture), tmp_path / name)
    model = AutoModel.from_pretrained(folder, add_pooling_layer=True).eval()
    model.save_pretrained(folder)
    encoder = SentenceEncoder.from_pretrained(folder)
    for sentence, vector in zip(SENTENCES, encoder.encode(SENTENCES), strict=True):
        with torch.no_grad():
            output = model(**encoder.tokenizer(sentence, return_tensors="pt"))
        expected = output.last_hidden_state[:, 0] if name.startswith("unsup") else output.pooler_output
        torch.testing.assert_close(vector, expected[0], atol=1e-5, rtol=0)
    assert SentenceEncoder.from_pretrained(folder, pooling="mean").head == "none"
