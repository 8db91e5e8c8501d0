"""Files of sentence-transformers: poolings, lengths, folders and repositories, and what is not supported or damaged."""

import json
import shutil

import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.sentence_transformers_format import read_sentence_transformers
from simcse_pl.models.settings import EncoderSettings
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
DENSE = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
NORMALIZE = {"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}


def write(folder, *modules, **files):
    """Write modules.json, and each FOLDER__FILE=content."""
    contents = {"modules": list(modules) or [TRANSFORMER, POOLING]} | files
    for name, content in contents.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "max", "include_prompt": True}, "max"),
        ({"pooling_mode": ["cls"]}, "cls"),
        ({"pooling_mode": "lasttoken"}, "last_token"),
        ({"pooling_mode_mean_tokens": False}, "mean"),  # the library's default
    ],
)
def test_poolings_of_old_and_new_folders(config, pooling, tmp_path):
    source = write(tmp_path, **{"1_Pooling__config": config})
    assert read_sentence_transformers(source).settings == EncoderSettings(pooling)


def test_a_transformer_in_a_folder_of_its_own(make_model, tmp_path):
    shutil.copytree(make_model("roberta"), tmp_path / "0_Transformer")
    transformer = {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    length = {"max_seq_length": 514, "do_lower_case": False}  # more than RoBERTa's 66 positions can take
    write(tmp_path, transformer, POOLING, **{"0_Transformer__sentence_roberta_config": length})
    encoder = SentenceEncoder.from_pretrained(tmp_path)
    assert encoder.settings == EncoderSettings("mean", "none", 64, False)
    expected = SentenceEncoder.from_pretrained(make_model("roberta"), pooling="mean").encode(SENTENCES)
    assert torch.equal(encoder.encode(SENTENCES), expected)


MODEL = "config_sentence_transformers"
PROMPT = {"prompts": {"q": "query: "}, "default_prompt_name": "q"}
ON_TOKENS = {"module_input_name": "token_embeddings"}


@pytest.mark.parametrize(
    ("modules", "files", "message"),
    [
        ([], {"1_Pooling__config": {"pooling_mode": ["cls", "mean"]}}, "the pooling .'cls', 'mean'."),
        ([TRANSFORMER, POOLING, {"path": "2_CNN", "type": "sentence_transformers.models.CNN"}], {}, "a module .*CNN"),
        ([TRANSFORMER, POOLING, NORMALIZE, DENSE], {}, "the modules Transformer, Pooling, Normalize, Dense"),
        ([TRANSFORMER, POOLING, NORMALIZE], {"3_Normalize__config": ON_TOKENS}, "Normalize with module_input_name=tok"),
        ([], {MODEL: PROMPT, "1_Pooling__config": {"include_prompt": False}}, "the prompt 'query: '"),
        ([TRANSFORMER, POOLING, NORMALIZE], {MODEL: {"truncate_dim": 8}}, "truncate_dim=8 after a module Normalize"),
        ([], {"modules": "[{}]"}, "its sentence-transformers files are damaged"),
        ([{"path": "../elsewhere", "type": TRANSFORMER["type"]}, POOLING], {}, "the folder ../elsewhere outside of it"),
    ],
)
def test_an_unsupported_or_damaged_folder_is_one_line(modules, files, message, make_model, tmp_path):
    source = write(shutil.copytree(make_model("bert"), tmp_path / "model"), *modules, **files)
    with pytest.raises(UserError, match=message):
        SentenceEncoder.from_pretrained(source)
    loaded = SentenceEncoder.from_pretrained(source, pooling="max")
    assert loaded.settings == EncoderSettings("max", "none", 64, False)
