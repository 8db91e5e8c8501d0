"""No path in a file leads out of its folder."""

import shutil
from pathlib import Path

import pytest

from simcse_pl.inference.sentence_index import SentenceIndex
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from tests.hostile_files.loaders import (
    NO_MODEL,
    POOLING,
    change,
    checkpoint_with,
    config,
    theirs,
)
from tests.hostile_files.tiny import encode


def tokenizer_elsewhere(option):
    shutil.move("model/tokenizer.json", "tokenizer.json")
    change("model/tokenizer_config.json", **{option: "../tokenizer.json"})
    SentenceEncoder.from_pretrained("model")


def module_elsewhere(path):
    Path("elsewhere").mkdir()
    theirs((POOLING[0], path))
    SentenceEncoder.from_pretrained("model")


LEAVES = {
    "weights that the config names": (
        lambda: config(transformers_weights="../model.safetensors"),
        f"^{NO_MODEL}",
    ),
    **{
        f"a module in {path}": (
            lambda path=path: module_elsewhere(path),
            "modules.json names the folder .* outside of this folder",
        )
        for path in ("../elsewhere", "1_Pooling/../../elsewhere", "/etc")
    },
    "a tokenizer elsewhere": (lambda: tokenizer_elsewhere("tokenizer_file"), f"^{NO_MODEL}"),
    "a vocabulary elsewhere": (lambda: tokenizer_elsewhere("vocab_file"), f"^{NO_MODEL}"),
    "a checkpoint's file": (lambda: checkpoint_with(**{"../left": "x"}), "^best.ckpt: its weights lack"),
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
    Path("index/index.json").symlink_to(Path("outside").absolute())
    SentenceIndex.build(encode, ["A dog."]).save("index")
    assert Path("outside").read_text() == "mine" and not Path("index/index.json").is_symlink()
