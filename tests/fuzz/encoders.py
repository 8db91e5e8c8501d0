"""Targets: folders of encoders, of ours and of others, and checkpoints of training."""

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load

from simcse_pl.checkpoint import ENTRY, describe
from simcse_pl.encoder import SentenceEncoder
from simcse_pl.errors import UserError
from simcse_pl.resume import LAST_CHECKPOINT, find_checkpoint
from simcse_pl.run_files import CURVES_FILE
from tests.fuzz.engine import Target
from tests.fuzz.tiny import encoder, files_under

Files = dict[str, Sequence[bytes]]
_SENTENCES = ["A dog.", "", "cat"]


def _encode(loaded: SentenceEncoder) -> None:
    """Weights that are no numbers are refused here, by where they are met."""
    with contextlib.suppress(UserError):
        loaded.encode(_SENTENCES)


def _ours(folder: Path) -> None:
    _encode(SentenceEncoder.from_pretrained(folder))


def _plain(folder: Path) -> None:
    _encode(SentenceEncoder.from_pretrained(folder, pooling="cls"))


def _released(folder: Path) -> None:
    _encode(SentenceEncoder.from_pretrained(folder / _NAME))


def _checkpoint(folder: Path) -> None:
    _encode(SentenceEncoder.from_checkpoint(folder / "a.ckpt"))


def _resumed(folder: Path) -> None:
    find_checkpoint("auto", folder, ["seed=1"])


def _saved(value: object) -> bytes:
    torch.save(value, buffer := io.BytesIO())
    return buffer.getvalue()


_NAME = "sup-simcse-bert-base-uncased"
_OURS: Files = dict(files_under(encoder().save_pretrained))
_TRANSFORMER: Files = {name: _OURS[name] for name in ("config.json", "tokenizer.json", "tokenizer_config.json")}
_WEIGHTS = load(_OURS["model.safetensors"][0])
_POOLER = {"pooler.dense.weight": torch.ones(4, 4), "pooler.dense.bias": torch.ones(4)}
_DENSE = {"linear.weight": torch.ones(4, 4), "linear.bias": torch.ones(4)}
_THEIRS: Files = {
    name: own
    for name, own in _OURS.items()
    if not name.startswith(("simcse", "postprocess", "head")) and "/" not in name
} | {
    "modules.json": [
        json.dumps(
            [
                {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
                for place, (path, kind) in enumerate(
                    [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")]
                )
            ]
        ).encode()
    ],
    "sentence_bert_config.json": [b'{"max_seq_length": 8, "do_lower_case": false}'],
    "config_sentence_transformers.json": [b'{"prompts": {}, "default_prompt_name": null}'],
    "1_Pooling/config.json": [b'{"pooling_mode": "cls"}', b'{"pooling_mode_mean_tokens": true}'],
    "2_Dense/config.json": [
        b'{"in_features": 4, "out_features": 4, "bias": true, "activation_function": "torch.nn.Tanh"}'
    ],
    "2_Dense/pytorch_model.bin": [_saved(_DENSE)],
}
_CONTENT = {
    "state_dict": {f"encoder.{name}": own for name, own in encoder().state_dict().items()},
    ENTRY: describe(encoder().backbone.config, encoder().tokenizer, encoder().settings),
    "global_step": 2,
    "callbacks": {"run": {"options": ["seed=1"], "before": {"val/spearman": 0.5}}},
}
_CURVES = [b"epoch,step,val/spearman\n0,0,0.5\n0,4,0.6\n", b"step\n\n"]

TARGETS = {
    "encoder": Target(_OURS, _ours, 100),
    "sentence_transformers": Target(_THEIRS, _ours, 100),
    "transformer": Target(_TRANSFORMER | {"pytorch_model.bin": [_saved(_WEIGHTS)]}, _plain, 60),
    "shards": Target(
        _TRANSFORMER
        | {
            "model.safetensors.index.json": [
                json.dumps({"metadata": {}, "weight_map": dict.fromkeys(_WEIGHTS, "a.safetensors")}).encode()
            ],
            "a.safetensors": _OURS["model.safetensors"],
        },
        _plain,
        60,
    ),
    "released": Target(
        {f"{_NAME}/{name}": own for name, own in _TRANSFORMER.items()}
        | {f"{_NAME}/pytorch_model.bin": [_saved(_WEIGHTS | _POOLER)]},
        _released,
        60,
    ),
    "checkpoint": Target({"a.ckpt": [_saved(_CONTENT)]}, _checkpoint, 150),
    "resume": Target({str(LAST_CHECKPOINT): [_saved(_CONTENT)], CURVES_FILE: _CURVES}, _resumed, 300),
}
