"""Each loader with one file of a stranger's, in the working folder, and files that run code as they are unpickled."""

import io
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from hydra._internal.utils import create_config_search_path
from hydra.types import RunMode

from simcse_pl.cli.report_neighbours import rebuild_encoder_before_training
from simcse_pl.config.loader import CheckedLoader
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.inference.sentence_index import SentenceIndex
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.lightning_checkpoint import CHECKPOINT_KEY, describe
from simcse_pl.models.load import load_encoder
from simcse_pl.postprocessing import saved
from simcse_pl.reports.sweeps.sweep_results import read_job, read_sweeps
from simcse_pl.sweeps.optuna_search import OptunaTrial
from simcse_pl.training.resume import find_checkpoint
from tests.hostile_files.tiny import encode, encoder

TOUCH = "open('touched', 'w').close()\n"
YAML = "!!python/object/apply:builtins.open ['touched', 'w']\n"


class Touch:
    """Unpickled, it has run code."""

    def __reduce__(self):
        return open, ("touched", "w")


def saved_bytes(save, value):
    save(value, buffer := io.BytesIO())
    return buffer.getvalue()


def torch_bytes(value):
    return saved_bytes(torch.save, value)


NO_MODEL = "cannot load the model in model: "

PICKLE = pickle.dumps(Touch())
TORCH = torch_bytes({"a": Touch()})
OLD_TORCH = saved_bytes(lambda value, file: torch.save(value, file, _use_new_zipfile_serialization=False), [Touch()])
NPY = saved_bytes(lambda value, file: np.save(file, value), np.array([Touch()], dtype=object))
NPZ = saved_bytes(lambda value, file: np.savez(file, a=value), np.array([Touch()], dtype=object))


def change(path, **values):
    path = Path(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def plain(*kept):
    """Make `model` a checkpoint of transformers, without what is ours."""
    for path in Path("model").iterdir():
        if path.name not in ("config.json", "tokenizer.json", "tokenizer_config.json", *kept):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def theirs(*modules):
    """Make `model` a folder of sentence-transformers with these modules after its transformer."""
    plain("model.safetensors")
    entries = [("sentence_transformers.models.Transformer", ""), *modules]
    Path("model/modules.json").write_text(json.dumps([{"type": kind, "path": path} for kind, path in entries]))
    Path("model/1_Pooling").mkdir()
    Path("model/1_Pooling/config.json").write_text('{"pooling_mode": "cls"}')


POOLING = ("sentence_transformers.models.Pooling", "1_Pooling")
DENSE = ("sentence_transformers.models.Dense", "2_Dense")


def weights(content, name="pytorch_model.bin"):
    plain()
    Path("model", name).write_bytes(content)
    SentenceEncoder.from_pretrained("model", pooling="cls")


def released(content):
    plain()
    Path("model/pytorch_model.bin").write_bytes(content)
    Path("model").rename("sup-simcse-bert-base-uncased")
    SentenceEncoder.from_pretrained("sup-simcse-bert-base-uncased")


def dense(content):
    theirs(POOLING, DENSE)
    Path("model/2_Dense").mkdir()
    Path("model/2_Dense/config.json").write_text('{"in_features": 4, "out_features": 4}')
    Path("model/2_Dense/pytorch_model.bin").write_bytes(content)
    SentenceEncoder.from_pretrained("model")


def module(kind):
    Path("evil.py").write_text(TOUCH)
    theirs((kind, ""), POOLING)
    SentenceEncoder.from_pretrained("model")


def ours(file, content):
    Path("model", file).write_bytes(content)
    SentenceEncoder.from_pretrained("model")


def config(**values):
    for name in ("configuration_evil.py", "modeling_evil.py"):
        Path("model", name).write_text(TOUCH)
    change("model/config.json", **values)
    SentenceEncoder.from_pretrained("model")


def tokenizer(**values):
    Path("model/tokenization_evil.py").write_text(TOUCH)
    change("model/tokenizer_config.json", **values)
    SentenceEncoder.from_pretrained("model").encode(["A dog."])


def checkpoint(content):
    Path("best.ckpt").write_bytes(content)
    load_encoder("best.ckpt")


def resumed(content):
    Path("checkpoints").mkdir()
    Path("checkpoints/last.ckpt").write_bytes(content)
    find_checkpoint("auto", Path.cwd(), [])


def index(file, content):
    SentenceIndex.build(encode, ["A dog.", "A cat."]).save("index")
    Path("index", file).write_bytes(content)
    SentenceIndex.load("index", encode)


def postprocess(file, content):
    Path("model", file).write_bytes(content)
    saved.load("model")


def run(file, content):
    """A sweep whose first job has no results, so that Hydra's files are read, one of them a stranger's."""
    scores = {"spearman": 0.5}
    Path("0/config").mkdir(parents=True)
    Path("1").mkdir()
    told = {"choices": {}, "overrides": []}
    Path("1/results.json").write_text(json.dumps({"best": scores, "test": scores} | told))
    Path(file).write_text(content)
    read_sweeps({"x": "."})


def began_with(content):
    Path("run/config").mkdir(parents=True)
    Path("run/config/config.yaml").write_text(content)
    rebuild_encoder_before_training(read_job(Path("run"), "run"))


def in_file(name, content, load):
    Path(name).write_bytes(content)
    load(name)


def extension(load):
    """What Arrow before version 14 unpickled as it read a schema."""
    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": PICKLE}
    field = pyarrow.field("a", pyarrow.string(), metadata=metadata)
    pyarrow.parquet.write_table(pyarrow.table([["A dog."]], schema=pyarrow.schema([field])), "a.parquet")
    load("a.parquet")


def script():
    Path("evil/data").mkdir(parents=True)
    Path("evil/data/data.py").write_text(TOUCH)
    read_rows("hf://datasets/evil/data")


def package(name):
    Path("evil").mkdir()
    Path("evil/__init__.py").write_text(TOUCH)
    load_encoder(name)


def study(content):
    Path("study.journal").write_bytes(content)
    OptunaTrial(".", {"lr": {"low": 0.1, "high": 1.0}})


def checkpoint_with(**files):
    entry = describe(encoder().backbone.config, encoder().tokenizer, encoder().settings)
    content = {"state_dict": {}, CHECKPOINT_KEY: entry | {"files": entry["files"] | files}}
    checkpoint(torch_bytes(content))


def composed(content):
    """A config of Hydra's."""
    Path("main.yaml").write_text(content)
    CheckedLoader(create_config_search_path(os.getcwd())).load_configuration("main", [], RunMode.RUN)
