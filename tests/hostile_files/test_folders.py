"""No path in a file leads out of its folder."""

import io
import json
import shutil
from pathlib import Path

import pytest
import torch

from simcse_pl.encoder import SentenceEncoder
from simcse_pl.errors import UserError
from simcse_pl.sentence_index import SentenceIndex
from tests.hostile_files.loaders import (
    NO_MODEL,
    POOLING,
    change,
    checkpoint_with,
    config,
    index,
    plain,
    theirs,
    torch_bytes,
)
from tests.hostile_files.tiny import encode, encoder


def sharded(name):
    """Weights in another folder, which an index of theirs names."""
    Path("elsewhere/in").mkdir(parents=True)
    for place in ("elsewhere/a.safetensors", "elsewhere/in/a.safetensors"):
        shutil.copy("model/model.safetensors", place)
    plain()
    tensors = torch.load(io.BytesIO(torch_bytes(encoder().backbone.state_dict())))
    places = dict.fromkeys(tensors, name)
    Path("model/model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    SentenceEncoder.from_pretrained("model", pooling="cls")


def tokenizer_elsewhere(option):
    shutil.move("model/tokenizer.json", "tokenizer.json")
    change("model/tokenizer_config.json", **{option: "../tokenizer.json"})
    SentenceEncoder.from_pretrained("model")


def module_elsewhere(path):
    Path("elsewhere").mkdir()
    theirs((POOLING[0], path))
    SentenceEncoder.from_pretrained("model")


LEAVES = {
    **{
        f"weights in {name}": (
            lambda name=name: sharded(name),
            "model.safetensors.index.json is damaged: its weight_map",
        )
        for name in ("../elsewhere/a.safetensors", "a/../../elsewhere/a.safetensors", "..", "")
    },
    "weights by an absolute path": (
        lambda: sharded(str(Path("elsewhere/a.safetensors").absolute())),
        "its weight_map must name files beside it",
    ),
    "weights that the config names": (
        lambda: config(transformers_weights="../model.safetensors"),
        f"^{NO_MODEL}",
    ),
    **{
        f"a module in {path}": (
            lambda path=path: module_elsewhere(path),
            "modules.json is damaged: it must be a list of",
        )
        for path in ("../elsewhere", "1_Pooling/../../elsewhere", "/etc")
    },
    "a tokenizer elsewhere": (lambda: tokenizer_elsewhere("tokenizer_file"), f"^{NO_MODEL}"),
    "a vocabulary elsewhere": (lambda: tokenizer_elsewhere("vocab_file"), f"^{NO_MODEL}"),
    "a checkpoint's file": (lambda: checkpoint_with(**{"../left": "x"}), "^best.ckpt is damaged: it must hold"),
    "an index's file": (lambda: index("retrieval.json", b'{"../x": ""}'), "^index/retrieval.json is damaged: it must"),
}


@pytest.mark.parametrize("case", LEAVES)
def test_no_path_in_a_file_leaves_its_folder(case, here):
    load, line = LEAVES[case]
    with pytest.raises(UserError, match=line) as error:
        load()
    assert "\n" not in str(error.value) and not Path("left").exists()


def test_saving_over_a_link_writes_nothing_where_it_leads(here):
    Path("outside").write_text("mine")
    Path("index").mkdir()
    Path("index/sentences.json").symlink_to(Path("outside").absolute())
    SentenceIndex.build(encode, ["A dog."]).save("index")
    assert Path("outside").read_text() == "mine" and not Path("index/sentences.json").is_symlink()
