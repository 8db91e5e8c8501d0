"""Compare the methods of this project with the records of their official code."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import torch
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file
from torch import Tensor
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

import simcse_pl.config  # noqa: F401  the config uses them
from benchmarks.fidelity.common import descend
from simcse_pl.losses.mlm import TokenMaskingLoss
from simcse_pl.methods import dclr, gs_infonce, whitenedcse
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.models.templates import Templates
from simcse_pl.module import SimCSEModule
from simcse_pl.train_job import build_module

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "fidelity" / "records"
RECORDS: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "records.yaml").read_text(encoding="utf-8"))["records"]
TOKENS: list[dict[str, Any]] = json.loads((FOLDER / "tokens.json").read_text(encoding="utf-8"))
_IDS = ("input_ids", "attention_mask")
# What the official scripts call the options.
HYPERPARAMETERS = {
    "optimizer.lr": ("learning_rate",),
    "data.batch_size": ("per_device_train_batch_size", "batch_size"),
    "trainer.max_epochs": ("num_train_epochs", "epochs"),
    "data.max_length": ("max_seq_length", "maxlen"),
    "objective.temperature": ("temp",),
    "val_every": ("eval_steps",),
}


def composed(*options: str) -> DictConfig:
    """Return the config that `simcse train` makes of options."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("train", ["run_dir=.", *options])


def hyperparameters(record: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield each option that the official script sets, its value there, and its value here."""
    choices = ("method=", "model=", "experiment=")
    config = composed(*(option for option in record["options"] if option.startswith(choices)))
    for option, names in HYPERPARAMETERS.items():
        if released := next((record["script"][name] for name in names if name in record.get("script", {})), None):
            node: Any = config
            for key in option.split("."):
                node = node[key]
            yield option, released, str(node)


def built(record: Mapping[str, Any], folder: Path) -> tuple[SimCSEModule, dict[str, Any]]:
    """Return the module and the batch that `simcse train` makes of the options of a record, without dropout."""
    file, guide = folder / "rows.jsonl", folder / "guide"
    names = [f"sentence{number}" for number in range(len(record["sentences"][0]))]
    rows = [dict(zip(names, row, strict=True)) for row in record["sentences"]]
    options = [f"data.columns=[{','.join(names)}]"]
    if "scores" in record:
        rows = [row | {"score": score} for row, score in zip(rows, record["scores"], strict=True)]
        options.append("data.score_column=score")
    if "{guide}" in str(record["options"]):
        SentenceEncoder.from_pretrained(FOLDER / "bert", pooling="cls").save_pretrained(guide)
    options += [option.format(bert=FOLDER / "bert", guide=guide) for option in record["options"]]
    model = FOLDER / record["model"]
    options += [f"model={record['model']}", f"model.name={model}", "model.num_layers=null", "model.max_length=null"]
    config = composed(*options, "model.dropout=0", "data=text", f"data.train={file}")
    encoder = instantiate(config.model)
    data, batch = read(rows, config, encoder.templates)
    module: SimCSEModule = build_module(config, encoder).double()
    module.prepare(data.rows)
    return module, batch


def read(rows: Sequence[Mapping[str, Any]], config: DictConfig, templates: Templates) -> tuple[Any, dict[str, Any]]:
    """Write rows to the file `data.train` of a config, and return the data and the batch that `simcse train` makes."""
    Path(config.data.train).write_text("\n".join(map(json.dumps, rows)))
    data = instantiate(config.data, tokenizer=templates.tokenizer, templates=templates, evaluators={})
    [(name, dataset)] = data.sets.items()
    data.rows[name] = dataset.read(templates.tokenizer, data.max_length, 0, {}, templates)
    return data, data.rows[name].batch([(0, row) for row in range(len(rows))])


def token_ids(record: Mapping[str, Any]) -> tuple[PreTrainedTokenizerBase, dict[str, list[list[int]]]]:
    """Return the tokenizer of a record of token ids, and the ids that this project makes of its sentences."""
    tokenizer, sentences = load_tokenizer(str(FOLDER / record["tokenizer"])), record["sentences"]
    with tempfile.TemporaryDirectory() as folder:
        config = composed(*record["options"], "data=text", f"data.train={folder}/rows.jsonl")
        template: Any = OmegaConf.to_container(config.model)["template"]
        as_text, period = config.model.template_as_text or "never", bool(config.model.final_period)
        apart, templates = Templates(tokenizer, template), Templates(tokenizer, template, False, period, as_text)
        data, rows = read([{"sentence": sentence} for sentence in sentences], config, templates)
    return tokenizer, {
        "training": unpadded({name: rows[name][:, : record["views"]].flatten(0, 1) for name in _IDS}),
        "validation": unpadded(apart.batch(apart.tokens_of(sentences, data.max_length))),
        "test": unpadded(templates.batch(templates.tokens_of(sentences, data.max_length))),
    }


def unpadded(inputs: Mapping[str, Tensor]) -> list[list[int]]:
    """Return the ids of each sequence without padding."""
    return [ids[mask == 1].tolist() for ids, mask in zip(*(inputs[name] for name in _IDS), strict=True)]


@contextmanager
def random_numbers(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Make the losses draw what the official code drew."""
    with ExitStack() as patches:
        if "mlm_input_ids" in tensors:
            masked = [tensors[name] for name in ("mlm_input_ids", "mlm_labels")]
            mask = MagicMock(side_effect=lambda ids, *words: tuple(x.view_as(ids) for x in masked))
            patches.enter_context(patch.object(TokenMaskingLoss, "mask", mask))
        for name, methods in {"noise": (dclr, gs_infonce), "orders": (whitenedcse,)}.items():
            if name in tensors:
                drawn = tensors[name].double() if name == "noise" else tensors[name]
                for method in methods:
                    patches.enter_context(patch.object(method, "from_first_rank", lambda _, drawn=drawn: drawn))
        yield


def differences(name: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Return what the official code and this project compute: the token ids, the losses and the gradients of weights.

    A gradient that the official code does not have is 0.
    """
    record, tensors = RECORDS[name], load_file(FOLDER / f"{name}.safetensors")
    groups: dict[str, dict[str, Tensor]] = {"input": {}, "weight": {}, "gradient": {}}
    for key, tensor in tensors.items():
        kind, _, rest = key.partition("/")
        if kind in groups:
            place = rest if kind == "input" else _own_name(rest, record.get("names", {}))
            assert place not in groups[kind], f"{place} has two names there"
            groups[kind][place] = tensor
    inputs = groups["input"]
    with tempfile.TemporaryDirectory() as folder:
        module, rows = built(record, Path(folder))
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    tokens = ids, rows["input_ids"]
    if "views" in record:  # views other than the sentence are random
        tokens = ids[:, 0][mask[:, 0] == 1], rows["input_ids"][:, 0][rows["attention_mask"][:, 0] == 1]
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        rows = given | {"roles": rows.get("roles")}
    weights = dict(module.named_parameters())
    with torch.no_grad():
        for place, tensor in groups["weight"].items():
            weights[place].copy_(tensor)
    with random_numbers(inputs):
        losses, gradients = descend(
            lambda: module.loss(module.batch_of(rows, queue=inputs.get("queue"))), weights, record.get("steps", 1)
        )
    compared = {"tokens": tokens, "loss": (tensors["loss"], losses)}
    for place, weight in weights.items():
        none = torch.zeros_like(weight)
        compared[place] = groups["gradient"].pop(place, none), gradients.get(place, none)
    assert not groups["gradient"], f"no weight is called {', '.join(groups['gradient'])}"
    return compared


def _own_name(name: str, names: Mapping[str, str]) -> str:
    """Return what a weight of the official model is called here."""
    names = {"bert.": "encoder.backbone.", "roberta.": "encoder.backbone.", **names}
    prefix = max((prefix for prefix in names if name.startswith(prefix)), key=len)
    return names[prefix] + name.removeprefix(prefix)
