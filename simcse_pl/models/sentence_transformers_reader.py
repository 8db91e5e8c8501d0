"""Reading the folders of sentence-transformers: pooling, head, normalization and length from their own files.

`modules.json` names the modules that a sentence goes through. Those that a SentenceEncoder can be are read, in the
formats of versions 2 to 6 of that library; whatever else would change the vectors is refused. No code is run.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from torch import Tensor
from transformers.tokenization_utils_base import LARGE_INTEGER

from simcse_pl.models.encoder_files import EncoderSettings, EncoderSpec, find_file, find_weights, load_weights
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import read_json

MODULES_FILE = "modules.json"
_MODEL_FILE = "config_sentence_transformers.json"
_ORDERS = [["Transformer", "Pooling", *after] for after in ([], ["Dense"], ["Normalize"], ["Dense", "Normalize"])]
_VECTOR = "sentence_embedding"
_POOLINGS = ("cls", "mean", "max")
# Before version 5.4 every pooling had a switch of its own.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# The transformer's own settings are called after the architecture in old folders.
_TRANSFORMER_FILES = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]


def read_sentence_transformers(source: str) -> EncoderSpec | None:
    """What a sentence-transformers folder says of its encoder; None where it is none.

    Args:
        source: a folder or a hub repository.

    Raises:
        UserError: a file that is damaged or missing, or a module or setting that a SentenceEncoder has not.
    """
    path = find_file(source, MODULES_FILE)
    if path is None:
        return None
    modules = _modules(path, source)
    for module in modules.keys() & {"Dense", "Normalize"}:
        config = _read(source, modules[module], "config.json")
        if any(config.get(f"module_{end}_name", _VECTOR) != _VECTOR for end in ("input", "output")):
            _refuse(source, f"a module {module} that is not applied to the sentence's vector")
    _refuse_prompt_and_cut(source)
    transformer = modules["Transformer"]
    own = _transformer_settings(source, transformer)
    settings = EncoderSettings(
        pooling=_pooling(source, modules["Pooling"]),
        head="mlp" if "Dense" in modules else "none",
        max_length=_max_length(source, transformer, own),
        normalize="Normalize" in modules,
    )
    head_weights = _head_weights(source, modules["Dense"]) if "Dense" in modules else {}
    return EncoderSpec(settings, head_weights, subfolder=transformer, lower_case=bool(own.get("do_lower_case")))


def _refuse(source: str, what: str) -> NoReturn:
    raise UserError(
        f"{source}: this sentence-transformers folder has {what}, which is not supported; "
        "to take its transformer alone, give that one's folder and a pooling"
    )


def _modules(path: Path, source: str) -> dict[str, str]:
    """The folder of each module, by the name of its class, in order."""
    entries = read_json(path)
    if not isinstance(entries, list) or not entries or not all(map(_is_module, entries)):
        raise UserError(f"{path} is damaged: it must be a list of modules, each with a type and a path")
    odd = next((entry["type"] for entry in entries if not _is_known(entry["type"])), None)
    if odd is not None:
        _refuse(source, f"a module {odd}")
    kinds = [entry["type"].rpartition(".")[2] for entry in entries]
    if kinds not in _ORDERS:
        _refuse(source, f"the modules {', '.join(kinds)} in this order")
    return dict(zip(kinds, (entry["path"] for entry in entries), strict=True))


def _is_module(entry: Any) -> bool:
    """A type, and a path that stays inside the folder."""
    match entry:
        case {"type": str(), "path": str(folder)}:
            path = PurePosixPath(folder)
            return not path.is_absolute() and ".." not in path.parts
    return False


def _is_known(kind: str) -> bool:
    return kind.startswith("sentence_transformers.") and any(kind.endswith(f".{name}") for name in _ORDERS[-1])


def _inside(folder: str, file: str) -> str:
    return str(PurePosixPath(folder, file))


def _read(source: str, folder: str, file: str) -> dict[str, Any]:
    """A JSON object of the folder; an empty one where there is no such file."""
    path = find_file(source, _inside(folder, file))
    value = {} if path is None else read_json(path)
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged: it must be a JSON object")
    return value


def _refuse_prompt_and_cut(source: str) -> None:
    """What the library does to every sentence and vector without being asked, beside the modules."""
    model = _read(source, "", _MODEL_FILE)
    prompts, default = model.get("prompts"), model.get("default_prompt_name")
    if isinstance(prompts, Mapping) and isinstance(default, str) and prompts.get(default):
        _refuse(source, f"a prompt before every sentence ({default})")
    if model.get("truncate_dim") is not None:
        _refuse(source, f"vectors that are cut to truncate_dim={model['truncate_dim']}")


def _transformer_settings(source: str, folder: str) -> dict[str, Any]:
    own = next((found for file in _TRANSFORMER_FILES if (found := _read(source, folder, file))), {})
    if (task := own.get("transformer_task", "feature-extraction")) != "feature-extraction":
        _refuse(source, f"a transformer for {task}")
    return own


def _max_length(source: str, folder: str, own: Mapping[str, Any]) -> int | None:
    """Since version 5.4 the length is the tokenizer's, which may be as good as endless."""
    length = own.get("max_seq_length")
    if length is None:
        length = _read(source, folder, "tokenizer_config.json").get("model_max_length")
    return length if isinstance(length, int) and length < LARGE_INTEGER else None


def _pooling(source: str, folder: str) -> str:
    config = _read(source, folder, "config.json")
    modes = config.get("pooling_mode") or [mode for switch, mode in _SWITCHES.items() if config.get(switch)] or "mean"
    match modes:
        case str(mode) | [str(mode)] if mode in _POOLINGS:
            return mode
        case str(mode) | [str(mode)]:
            _refuse(source, f"the pooling {mode}")
        case list():
            _refuse(source, f"several poolings at once ({', '.join(map(str, modes))})")
    raise UserError(f"{source} is damaged: {_inside(folder, 'config.json')} has pooling_mode {modes!r:.40}")


def _head_weights(source: str, folder: str) -> dict[str, Tensor]:
    """Dense with a bias and Tanh, from dim to dim, is the head `mlp`: Linear and Tanh in a row."""
    config = _read(source, folder, "config.json")
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    if activation != "Tanh":
        _refuse(source, f"a module Dense with {activation} where Tanh is expected")
    if config.get("in_features") != config.get("out_features"):
        _refuse(source, f"a module Dense from {config.get('in_features')} to {config.get('out_features')} dimensions")
    if not config.get("bias", True) or config.get("use_residual", False):
        _refuse(source, "a module Dense without a bias or with a residual")
    path = find_weights(source, folder)
    if path is None:
        raise UserError(f"{source}: the weights of its module Dense, {folder}/model.safetensors, are missing")
    try:
        weights = load_weights(path)
        return {"0.weight": weights["linear.weight"], "0.bias": weights["linear.bias"]}
    except Exception as error:  # safetensors and torch each have their own; torch's say how to run a file's code
        raise UserError(f"{path} is damaged, or holds something else than the weights of a module Dense") from error
