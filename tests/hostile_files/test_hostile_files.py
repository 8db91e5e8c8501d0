"""Model and data files never run code."""

import io
import json
import pickle
import shutil
import sys
from pathlib import Path

import pytest
import torch

from simcse_pl.checkpoints import find_start
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import load_encoder
from simcse_pl.postprocessing.linear import Whitening
from simcse_pl.utils.errors import UserError
from tests.support.helpers import change_json

TOUCH = "open('touched', 'w').close()\n"
AUTO_MAP = {"AutoConfig": "configuration_evil.Evil", "AutoModel": "modeling_evil.Evil"}


class Touch:
    """An object that creates a file when it is unpickled."""

    def __reduce__(self):
        return open, ("touched", "w")


def torch_file(**options):
    torch.save({"a": Touch()}, buffer := io.BytesIO(), **options)
    return buffer.getvalue()


PICKLE = pickle.dumps(Touch())
TORCH = torch_file()
OLD_TORCH = torch_file(_use_new_zipfile_serialization=False)


@pytest.fixture(scope="module")
def saved(make_model, tmp_path_factory):
    """The folder of an encoder with a head and a post-processing."""
    folder = tmp_path_factory.mktemp("saved")
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", head="mlp")
    encoder.postprocess = Whitening(2).fit(torch.randn(20, encoder.dim))
    encoder.save_pretrained(folder)
    return folder


@pytest.fixture
def here(saved, tmp_path, monkeypatch):
    """The working folder, with the encoder as `model`."""
    shutil.copytree(saved, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def write(name, content):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def load(pooling=None):
    return SentenceEncoder.from_pretrained("model", pooling=pooling)


def load_plain(weights, content):
    """Load a checkpoint of transformers."""
    for path in Path("model").iterdir():
        if path.name not in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    write(f"model/{weights}", content)
    load(pooling="cls")


def load_modules(*modules, **files):
    """Load a folder of sentence-transformers with these modules after its transformer."""
    Path("model/simcse.json").unlink()
    entries = [("sentence_transformers.models.Transformer", ""), *modules]
    write("model/modules.json", json.dumps([{"type": kind, "path": path} for kind, path in entries]))
    write("model/1_Pooling/config.json", '{"pooling_mode": "cls"}')
    shutil.rmtree("model/2_Dense", ignore_errors=True)
    for name, content in files.items():
        write(f"model/2_Dense/{name.replace('__', '.')}", content)
    load()


def load_with_code(**config):
    for name in ("configuration_evil.py", "modeling_evil.py", "tokenization_evil.py"):
        write(f"model/{name}", TOUCH)
    change_json(Path("model/config.json"), **config)
    tokenizer = {"AutoTokenizer": ["tokenization_evil.Evil", None]}
    change_json(Path("model/tokenizer_config.json"), tokenizer_class="Evil", auto_map=tokenizer)
    load().encode(["A dog."])


def load_with_file(name, content):
    write(f"model/{name}", content)
    load()


def load_checkpoint(content):
    write("best.ckpt", content)
    load_encoder("best.ckpt")


def resume(content):
    write("checkpoints/last.ckpt", content)
    find_start("auto", Path.cwd())


def load_package(name):
    write("evil/__init__.py", TOUCH)
    load_encoder(name)


POOLING = ("sentence_transformers.models.Pooling", "1_Pooling")
DENSE = ("sentence_transformers.models.Dense", "2_Dense")
SIZES = '{"in_features": 32, "out_features": 32}'
SYSTEM = b'{"name": "os.system", "width": 32, "options": {}}'

FILES = {  # how a file is loaded, and the file that the message names; None if the rest is loaded
    "a checkpoint": (lambda: load_checkpoint(TORCH), "best.ckpt"),
    "a checkpoint to resume": (lambda: resume(TORCH), "last.ckpt"),
    "weights": (lambda: load_plain("pytorch_model.bin", TORCH), "model"),
    "weights in torch's old format": (lambda: load_plain("pytorch_model.bin", OLD_TORCH), "model"),
    "safetensors that are a pickle": (lambda: load_plain("model.safetensors", PICKLE), "model"),
    "a head": (lambda: load_with_file("head.safetensors", TORCH), "model/head.safetensors"),
    "a post-processing": (lambda: load_with_file("postprocess.safetensors", TORCH), "model/postprocess.safetensors"),
    "the class of a post-processing": (lambda: load_with_file("postprocess.json", SYSTEM), "model/postprocess.json"),
    "the class of a module": (lambda: load_modules(("os.system", ""), POOLING), "model.*os.system"),
    "a dense module": (
        lambda: load_modules(POOLING, DENSE, config__json=SIZES, pytorch_model__bin=TORCH),
        "2_Dense/pytorch_model.bin",
    ),
    "code beside a known model": (lambda: load_with_code(auto_map=AUTO_MAP), None),
    "code of a new model": (lambda: load_with_code(model_type="evil", auto_map=AUTO_MAP), "model"),
    "attention code on the Hub": (lambda: load_with_code(_attn_implementation="evil/kernel"), "model/config.json"),
    "a package": (lambda: load_package("package:evil"), "package:evil"),
}


@pytest.mark.parametrize("case", FILES)
def test_no_file_runs_code(case, here):
    load_case, named = FILES[case]
    if named is None:
        load_case()
    else:
        with pytest.raises(UserError, match=named):
            load_case()
    assert not Path("touched").exists() and not any("evil" in name for name in sys.modules)


def test_saving_over_a_link_does_not_change_its_target(here):
    write("outside", "mine")
    write("new/x", "")
    Path("new/simcse.json").symlink_to(Path("outside").absolute())
    load().save_pretrained("new")
    assert Path("outside").read_text() == "mine" and not Path("new/simcse.json").is_symlink()
