"""The files that make a folder one of sentence-transformers: `modules.json`, and a folder for each module.

They are written in the format that its versions 2 to 6 all read.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PretrainedConfig

from simcse_pl.models.encoder_files import EncoderSpec
from simcse_pl.models.pooling import Pooling, find_pooling, first_token, max_over_tokens, mean_over_tokens
from simcse_pl.postprocessing.affine import AffinePostProcess
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError

_SWITCHES = {
    first_token: "pooling_mode_cls_token",
    mean_over_tokens: "pooling_mode_mean_tokens",
    max_over_tokens: "pooling_mode_max_tokens",
}
_ACTIVATIONS = {"Tanh": "torch.nn.modules.activation.Tanh", "Identity": "torch.nn.modules.linear.Identity"}


@dataclass(frozen=True)
class _Module:
    """A module of that library: the name of its class, its settings and its weights."""

    kind: str
    config: dict[str, Any]
    weights: dict[str, Tensor] = field(default_factory=dict)


def check_pooling(pooling: str, num_layers: int) -> None:
    """Check that sentence-transformers has a pooling.

    That library averages hidden states over layers first, which changes the maximum over tokens.

    Raises:
        UserError: none of its modules computes this pooling.
    """
    found = find_pooling(pooling, num_layers)
    several_maxima = found.over_tokens is max_over_tokens and len(found.layers) > 1
    if found.over_tokens not in _SWITCHES or several_maxima:
        raise UserError(f"pooling={pooling}: sentence-transformers has no such module, only simcse_pl loads it")


def write_modules(saved: EncoderSpec, config: PretrainedConfig, folder: Path) -> None:
    """Write the files that let `SentenceTransformer(folder)` load a folder with a transformer and its tokenizer.

    A head that is kept at test time becomes a module Dense, a linear post-processing one more.

    Args:
        saved: the encoder's settings, weights of the head and post-processing.
        config: of the transformer.
        folder: with the transformer's own files.

    Raises:
        UserError: a post-processing that is not linear, or a pooling that `check_pooling` rejects.
    """
    settings, num_layers, dim = saved.settings, config.num_hidden_layers, config.hidden_size
    assert settings.pooling is not None
    check_pooling(settings.pooling, num_layers)
    pooling = find_pooling(settings.pooling, num_layers)
    modules = [*_layers(folder, pooling, num_layers, dim), _pooling(pooling, dim)]
    if settings.head == "mlp":
        modules.append(_dense("Tanh", saved.head_weights["0.weight"], saved.head_weights["0.bias"]))
    if saved.postprocess is not None:
        modules.append(_affine(saved.postprocess))
    if settings.normalize:
        modules.append(_Module("Normalize", {}))
    places = [f"{place}_{module.kind}" for place, module in enumerate(modules, start=1)]
    for place, module in zip(places, modules, strict=True):
        (folder / place).mkdir()
        _write(folder / place / "config.json", module.config)
        if module.weights:
            save_file(module.weights, folder / place / "model.safetensors")
    _write(folder / "sentence_bert_config.json", {"max_seq_length": settings.max_length, "do_lower_case": False})
    _write(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    kinds = ["Transformer", *(module.kind for module in modules)]
    _write(folder / "modules.json", _entries(kinds, ["", *places]))


def _entries(kinds: Sequence[str], places: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, place) in enumerate(zip(kinds, places, strict=True))
    ]


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _layers(folder: Path, pooling: Pooling, num_layers: int, dim: int) -> list[_Module]:
    """The mean over layers, where others than the last are read; the transformer has to give them all then."""
    if pooling.reads_last_layer_alone:
        return []
    config = folder / "config.json"
    _write(config, json.loads(config.read_text(encoding="utf-8")) | {"output_hidden_states": True})
    weights = torch.zeros(num_layers + 1)
    weights[list(pooling.layers)] = 1
    settings = {"word_embedding_dimension": dim, "layer_start": 0, "num_hidden_layers": num_layers}
    return [_Module("WeightedLayerPooling", settings, {"layer_weights": weights})]


def _pooling(pooling: Pooling, dim: int) -> _Module:
    switches = {switch: over_tokens is pooling.over_tokens for over_tokens, switch in _SWITCHES.items()}
    return _Module("Pooling", {"word_embedding_dimension": dim, **switches})


def _dense(activation: str, weight: Tensor, bias: Tensor) -> _Module:
    width, dim = weight.shape
    config = {"in_features": dim, "out_features": width, "bias": True, "activation_function": _ACTIVATIONS[activation]}
    weights = {"linear.weight": weight, "linear.bias": bias}
    plain = {name: tensor.detach().float().cpu().contiguous() for name, tensor in weights.items()}
    return _Module("Dense", config, plain)


def _affine(postprocess: PostProcess) -> _Module:
    """From x to (x - mean) matrix."""
    if not isinstance(postprocess, AffinePostProcess):
        raise UserError(f"{postprocess.name} is not linear, and sentence-transformers has no module for it")
    return _dense("Identity", postprocess.matrix.T, -postprocess.mean @ postprocess.matrix)
