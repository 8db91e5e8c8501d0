"""Load tokenizers by the name of a model."""

import json
import shutil

from simcse_pl.models.sources import load_tokenizer


def test_a_tokenizer_without_pad_token_uses_another(make_model, tmp_path):
    folder = shutil.copytree(make_model("bert"), tmp_path / "model")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("pad_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_tokenizer(str(folder)).pad_token == "[SEP]"
