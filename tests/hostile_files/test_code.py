"""No file runs code, whichever loader gets it."""

import io
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from simcse_pl.data.readers.row_reader import read_rows, read_sentences
from simcse_pl.models.word_vectors import WordVectors
from simcse_pl.results.evaluation_results import read
from simcse_pl.tracking.wandb_runs import remembered_run
from simcse_pl.utils.errors import UserError
from tests.hostile_files.loaders import (
    NO_MODEL,
    NPY,
    NPZ,
    OLD_TORCH,
    PICKLE,
    TORCH,
    YAML,
    began_with,
    checkpoint,
    composed,
    config,
    dense,
    extension,
    in_file,
    index,
    module,
    ours,
    package,
    postprocess,
    released,
    resumed,
    run,
    script,
    study,
    tokenizer,
    weights,
)

MAP = {"AutoConfig": "configuration_evil.Evil", "AutoModel": "modeling_evil.Evil"}
RUNS_CODE = {  # a loader with its file, and the line that the user gets; none where the rest of the file is read
    **{
        f"a checkpoint, {name}": (
            lambda content=content: checkpoint(content),
            "^best.ckpt is no checkpoint, or damaged",
        )
        for name, content in {"pickle": PICKLE, "torch": TORCH, "old torch": OLD_TORCH}.items()
    },
    "a checkpoint to go on from": (lambda: resumed(TORCH), "last.ckpt is no checkpoint, or damaged, or holds more"),
    **{
        f"weights, {name}": (lambda content=content: weights(content), f"^{NO_MODEL}")
        for name, content in {"pickle": PICKLE, "torch": TORCH, "old torch": OLD_TORCH, "npy": NPY, "npz": NPZ}.items()
    },
    "safe weights that are a pickle": (lambda: weights(PICKLE, "model.safetensors"), f"^{NO_MODEL}"),
    "a released checkpoint": (lambda: released(TORCH), "pytorch_model.bin is no checkpoint, or damaged"),
    "a module Dense": (lambda: dense(TORCH), "2_Dense/pytorch_model.bin is no checkpoint, or damaged"),
    "a module Dense, old torch": (lambda: dense(OLD_TORCH), "2_Dense/pytorch_model.bin is no checkpoint, or dam"),
    "a module by its class": (lambda: module("evil.Module"), "^model: .* has a module evil.Module, which is not"),
    "a module of the system": (lambda: module("os.system"), "^model: .* has a module os.system, which is not"),
    "a head": (lambda: ours("head.safetensors", TORCH), "^model/head.safetensors is damaged"),
    "settings": (lambda: ours("simcse.json", PICKLE), "^model/simcse.json is damaged, or no JSON"),
    "code beside a known model": (lambda: config(auto_map=MAP), None),
    "code of a new model": (lambda: config(model_type="evil", auto_map=MAP), f"^{NO_MODEL}.* custom code"),
    **{
        f"code of the hub for attention, {where}": (
            lambda values=values: config(**values),
            "^model/config.json: _attn_implementation names code in a hub repository, which is never run: remove this",
        )
        for where, values in {
            "at the top": {"_attn_implementation": "evil/kernel"},
            "in a config in it": {"text_config": {"_attn_implementation": "evil/kernel"}},
            "by the config's name": {"_attn_implementation": {"text_config": "evil/kernel"}},
        }.items()
    },
    "code of a tokenizer": (
        lambda: tokenizer(tokenizer_class="Evil", auto_map={"AutoTokenizer": ["tokenization_evil.Evil", None]}),
        None,
    ),
    "a tokenizer's template": (
        lambda: tokenizer(chat_template="{{ ''.__class__.__mro__[1].__subclasses__() }}{% raise %}"),
        None,
    ),
    "an index's vectors": (lambda: index("vectors.safetensors", TORCH), "^index/vectors.safetensors is damaged"),
    "an index's sentences": (lambda: index("index.json", PICKLE), "^index/index.json is damaged, or no JSON"),
    "a pickle beside an index": (lambda: index("index.faiss", PICKLE), None),
    "a post-processing": (lambda: postprocess("postprocess.safetensors", TORCH), "^model/postprocess.safetensors is d"),
    "a post-processing, npz": (lambda: postprocess("postprocess.safetensors", NPZ), "^model/postprocess.safetensors"),
    "a post-processing's settings": (lambda: postprocess("postprocess.json", PICKLE), "^model/postprocess.json is dam"),
    "a post-processing's class": (
        lambda: postprocess("postprocess.json", b'{"name": "os.system", "width": 4, "options": {}}'),
        "^model/postprocess.json is damaged: .os.system",
    ),
    **{
        f"options in YAML, {file}": (
            lambda file=file: run(file, YAML),
            f"^{file} is damaged: could not determine",
        )
        for file in ("0/config/overrides.yaml", "0/config/hydra.yaml", "0/config/config.yaml", "multirun.yaml")
    },
    "a run's config in YAML": (
        lambda: began_with(YAML),
        "^run/config/config.yaml .* could not determine",
    ),
    "a config": (lambda: composed(YAML), "^a config file is not valid YAML: could not determine"),
    "a run's config that builds": (
        lambda: began_with("seed: 1\nmodel: {_target_: pathlib.Path.touch, self: touched}"),
        "^run/config/config.yaml: .* model._target_=pathlib.Path.touch is not .*SentenceEncoder.from_pretrained",
    ),
    "results": (lambda: in_file("results.json", PICKLE, read), "^results.json is damaged, or no JSON"),
    "results of a run": (lambda: run("0/results.json", PICKLE.decode("latin-1")), "^0/results.json is damaged, or no"),
    "a W&B run": (
        lambda: in_file("wandb_run.json", PICKLE, lambda _: remembered_run(Path())),
        "^wandb_run.json is dam",
    ),
    "a study": (lambda: study(PICKLE), "^study.journal is damaged or belongs to another search"),
    "sentences in npy": (lambda: in_file("a.npy", NPY, read_rows), "^a.npy: its name should end in .txt, .csv"),
    "sentences in a pickle": (lambda: in_file("a.pkl", PICKLE, read_rows), "^a.pkl: its name should end in .txt"),
    "sentences that are a pickle": (lambda: in_file("a.txt", PICKLE, read_rows), "^a.txt, line 1: not UTF-8"),
    "a type of Arrow's": (lambda: extension(read_sentences), None),
    "word vectors": (lambda: in_file("a.vec", PICKLE, WordVectors.from_file), "^a.vec, line 1: not UTF-8"),
    "a dataset's script": (script, "^dataset evil/data, split train, cannot be loaded"),
    "a package in a package": (lambda: package("package:evil.model"), "^package:evil.model: no package evil.model"),
    "a package": (lambda: package("package:evil"), "^package:evil: no package evil with a folder `model`"),
}


@pytest.mark.parametrize("case", RUNS_CODE)
def test_no_file_runs_code(case, here):
    load, line = RUNS_CODE[case]
    if line is None:
        load()
    else:
        with pytest.raises(UserError, match=line) as error:
            load()
        assert "\n" not in str(error.value)
    assert not Path("touched").exists() and not any("evil" in name for name in sys.modules)


CARELESS = {
    "pickle": lambda: pickle.loads(PICKLE),
    "torch": lambda: torch.load(io.BytesIO(TORCH), weights_only=False),
    "old torch": lambda: torch.load(io.BytesIO(OLD_TORCH), weights_only=False),
    "npy": lambda: np.load(io.BytesIO(NPY), allow_pickle=True),
    "npz": lambda: np.load(io.BytesIO(NPZ), allow_pickle=True)["a"],
    "yaml": lambda: yaml.unsafe_load(YAML),
}


@pytest.mark.parametrize("loader", CARELESS)
def test_a_careless_loader_would_run_them(loader, here):
    CARELESS[loader]()
    assert Path("touched").exists()
