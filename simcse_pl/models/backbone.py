"""Loading a Hugging Face encoder as a backbone, whatever its architecture calls its parts."""

import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from simcse_pl.models.encoder_files import check_config, find_file
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError, first_line, is_failure, reraise_as

PACKAGE = "package:"

# What architectures call the rates; every name that a config has is set.
_HIDDEN_DROPOUT = (
    "hidden_dropout_prob",
    "hidden_dropout",
    "dropout",
    "dropout_rate",
    "embedding_dropout",
    "mlp_dropout",
)
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout")


def resolve(name: str) -> str:
    """The folder or hub name that `name` stands for.

    Args:
        name: a folder, a hub name, or `package:NAME` for the weights that a Python package carries in its
            folder `model`.

    Raises:
        UserError: the package is not installed or carries no such folder.
    """
    if not name.startswith(PACKAGE):
        return name
    package = name.removeprefix(PACKAGE)
    plain = package.isidentifier()  # to find a package in a package, the outer one is run
    spec = importlib.util.find_spec(package) if plain else None
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else None
    if folder is None or not folder.is_dir():
        hint = f"pip install {package.replace('_', '-')}"
        raise UserError(f"{name}: no package {package} with a folder `model` is installed: {hint}")
    return str(folder)


def load_backbone(
    name: str,
    num_layers: int | None = None,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    subfolder: str = "",
    pretrained: bool = True,
) -> PreTrainedModel:
    """A pretrained encoder in float32, without its pooler.

    Args:
        name: see `resolve`.
        num_layers: keep the first layers only; all of them where None.
        dropout: the rate after the embeddings and after each sublayer; the checkpoint's own where None.
        attention_dropout: the rate on the attention probabilities; where None, `dropout` if it has such a rate.
        subfolder: where in the folder or repository the model is, if not at its root.
        pretrained: false leaves the checkpoint's weights aside and draws random ones.

    Raises:
        UserError: no such checkpoint, weights missing from it, an architecture that is not a text encoder, or a value
            that its architecture cannot take.
    """
    source = resolve(name)
    with _one_line_errors(name), quiet_transformers():
        config = _load_config(source, subfolder)
        _check_architecture(config, name)
        if num_layers is not None:
            _keep_layers(config, num_layers, name)
    _set_dropout(config, dropout, attention_dropout, name)
    with _one_line_errors(name), quiet_transformers():
        model: PreTrainedModel
        if not pretrained:
            return _without_pooler(AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False))
        model, info = AutoModel.from_pretrained(
            source,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            subfolder=subfolder,
            **_loading(source),
        )
    missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise UserError(f"{name}: its weights lack {missing[0]} ({len(missing)} missing): is it a {config.model_type}?")
    return _without_pooler(model)


def rebuild_backbone(
    name: str, config: PreTrainedConfig, weights: Mapping[str, Tensor], num_layers: int | None = None
) -> PreTrainedModel:
    """A backbone from its config and weights, as a checkpoint of training holds them.

    Args:
        name: what errors call it.
        config: says the architecture; its number of layers is set here.
        weights: by the names of the backbone's own state dict.
        num_layers: keep the first layers only; all of them where None.

    Raises:
        UserError: weights that are missing or do not fit, or more layers than there are.
    """
    if num_layers is not None:
        _keep_layers(config, num_layers, name)
    with (
        reraise_as(f"{name}: its weights do not fit its config"),
        torch.random.fork_rng(devices=[]),
        quiet_transformers(),
    ):
        model = _without_pooler(AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False))
        missing = model.load_state_dict(weights, strict=False).missing_keys
    if missing:
        raise UserError(f"{name}: its weights lack {missing[0]} ({len(missing)} missing): is it damaged?")
    return model


def load_masked_language_model(name: str, config: PreTrainedConfig | None = None) -> PreTrainedModel:
    """A masked language model in float32 with its pretrained head, set to evaluate.

    Args:
        name: see `resolve`.
        config: in place of the checkpoint's own.

    Raises:
        UserError: no such checkpoint, or one without that head.
    """
    source = resolve(name)
    with _one_line_errors(name), quiet_transformers(), torch.random.fork_rng(devices=[]):  # missing ones are drawn
        config = config or _load_config(source)
        model: PreTrainedModel
        model, info = AutoModelForMaskedLM.from_pretrained(
            source, config=config, dtype=torch.float32, output_loading_info=True, **_loading(source)
        )
    if missing := sorted(info["missing_keys"]):
        raise UserError(f"{name} has no masked-language-model head (no {missing[0]})")
    return model


def load_tokenizer(name: str, subfolder: str = "") -> PreTrainedTokenizerBase:
    """The checkpoint's tokenizer, padding on the right.

    Args:
        name: see `resolve`.
        subfolder: where in the folder or repository it is, if not at its root.

    Raises:
        UserError: there is none.
    """
    source = resolve(name)
    with _one_line_errors(name), quiet_transformers():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source, subfolder=subfolder, **_loading(source)
        )
    tokenizer.padding_side = "right"  # [CLS] is looked for at position 0
    if tokenizer.pad_token is None:  # padding is masked, so any token will do
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.sep_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        raise UserError(f"{name}: its tokenizer has no pad token and none that could stand in for it")
    return tokenizer


def match_inputs(tokenizer: PreTrainedTokenizerBase, backbone: PreTrainedModel) -> None:
    """Make the tokenizer return only what the backbone takes: token types, say, only where it has them."""
    takes = inspect.signature(backbone.forward).parameters
    wanted = [name for name in ("input_ids", "token_type_ids", "attention_mask") if name in takes]
    has_types = getattr(backbone.config, "type_vocab_size", 0) > 0
    tokenizer.model_input_names = [name for name in wanted if name != "token_type_ids" or has_types]
    tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names  # and where it is saved and loaded again


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, backbone: PreTrainedModel, name: str) -> None:
    """Refuse a tokenizer that gives tokens which the backbone has no vectors of.

    Raises:
        UserError: it is of another model.
    """
    words, largest = word_embedding_layer(backbone), max(tokenizer.get_vocab().values(), default=0)
    if words is not None and largest >= words.num_embeddings:
        vectors = f"and its model has vectors of {words.num_embeddings}, counted from 0"
        raise UserError(f"{name}: its tokenizer is of another model: it has a token {largest}, {vectors}")


def lower_cases(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether capitals and small letters are the same to the tokenizer."""
    normalizer = tokenizer.backend_tokenizer.normalizer if tokenizer.is_fast else None
    return normalizer is not None and normalizer.normalize_str("ABC") == normalizer.normalize_str("abc")


def longest_input(backbone: PreTrainedModel) -> int | None:
    """The most tokens the backbone's position embeddings can take; None where its positions have no end.

    RoBERTa and its kin count positions from the pad id upwards, and lose that many.
    """
    for module_name, module in backbone.named_modules():
        if module_name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            lost = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - lost
    limit: int | None = getattr(backbone.config, "max_position_embeddings", None)
    return limit if limit is not None and limit > 0 else None


def word_embedding_layer(backbone: PreTrainedModel) -> nn.Embedding | None:
    """What turns token ids into vectors; None where a backbone has no such layer."""
    try:
        layer = backbone.get_input_embeddings()
    except NotImplementedError:
        return None
    return layer if isinstance(layer, nn.Embedding) else None


def recompute_layers(backbone: PreTrainedModel) -> None:
    """Keep no activations inside layers; backward computes them again, under the same random numbers.

    Raises:
        UserError: an architecture whose layers cannot be computed again.
    """
    enable = getattr(backbone, "activation_checkpointing_enable", None) or backbone.gradient_checkpointing_enable
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise UserError(f"gradient_checkpointing=true: {first_line(error)}") from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and no reports from transformers while it loads or saves."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with hub.quiet("huggingface_hub"):
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _load_config(source: str, subfolder: str = "") -> PreTrainedConfig:
    if (path := find_file(source, str(PurePosixPath(subfolder, "config.json")))) is not None:
        check_config(path)
    config: PreTrainedConfig = AutoConfig.from_pretrained(source, subfolder=subfolder, **_loading(source))
    return config


def _loading(source: str) -> dict[str, bool]:
    """How everything is loaded: no code that comes with a model is run, and no question asked about it."""
    local = Path(source).is_dir() or hub.unavailable(source) is not None
    return {"local_files_only": local, "trust_remote_code": False}


def _check_architecture(config: PreTrainedConfig, name: str) -> None:
    if config.is_encoder_decoder:
        raise UserError(f"{name}: {config.model_type} is an encoder-decoder model; choose an encoder, such as BERT")
    classes = MODEL_MAPPING[type(config)]  # some have several: the first is the default
    model_class = classes[0] if isinstance(classes, list | tuple) else classes
    takes = inspect.signature(model_class.forward).parameters if model_class else {}
    for needed in ("input_ids", "attention_mask"):
        if needed not in takes:
            raise UserError(f"{name}: {config.model_type} is not a text encoder that masks padding: no {needed}")


def _without_pooler(model: PreTrainedModel) -> PreTrainedModel:
    if getattr(model, "pooler", None) is not None:
        model.pooler = nn.Identity()  # our pooling takes its place; some architectures call it without a check
    return model


@contextmanager
def _one_line_errors(name: str) -> Iterator[None]:
    """What transformers says at length when a checkpoint cannot be loaded, in one line."""
    try:
        yield
    except BaseException as error:  # whatever a damaged file makes of it there
        if isinstance(error, UserError) or not is_failure(error):
            raise
        source = resolve(name)
        if Path(source).exists():
            raise UserError(f"cannot load the model in {name}: {first_line(error)}") from error
        if why := hub.unavailable(source):
            raise UserError(
                f"model {name}: no such folder, no copy in the local cache, and {why}; give the folder of a checkpoint"
            ) from error
        raise UserError(
            f"cannot load model {name}: not a local folder, and from the Hugging Face Hub: {hub.reason(error)}"
        ) from error


def _keep_layers(config: PreTrainedConfig, num_layers: int, name: str) -> None:
    available = config.num_hidden_layers
    if not 1 <= num_layers <= available:
        raise UserError(f"num_layers={num_layers}: {name} has {available} layers; choose 1 to {available}")
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:num_layers]


def _set_dropout(config: PreTrainedConfig, hidden: float | None, attention: float | None, name: str) -> None:
    _set_rate(config, "dropout", hidden, _HIDDEN_DROPOUT, name)
    if attention is None and any(hasattr(config, own) for own in _ATTENTION_DROPOUT):
        attention = hidden
    _set_rate(config, "attention_dropout", attention, _ATTENTION_DROPOUT, name)


def _set_rate(config: PreTrainedConfig, option: str, rate: float | None, names: tuple[str, ...], name: str) -> None:
    """Set one of our options under every name that this architecture's config has for it."""
    if rate is None:
        return
    if not 0 <= rate < 1:
        raise UserError(f"{option}={rate}: it must be at least 0 and below 1")
    own_names = [own for own in names if own in config.to_dict()]
    if not own_names:
        raise UserError(f"{option}={rate}: {name} ({config.model_type}) has no such dropout")
    for own in own_names:
        setattr(config, own, float(rate))
