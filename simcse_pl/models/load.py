"""Load any encoder by its name: a folder, a hub name, a checkpoint of training, or a file of word vectors.

Fingerprints tell encoders apart: by them, `simcse export` finds results, and caches find vectors and scores.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any

from torch import Tensor

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.heads import HEADS, is_kept
from simcse_pl.models.sources import resolve
from simcse_pl.models.static_embeddings import StaticEmbeddings, read_static_embeddings
from simcse_pl.models.word_vectors import AveragedVectors, WordVectors
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import hash_tensors

Encoder = SentenceEncoder | AveragedVectors
# Entries of a config that change no vector; nor do rates of dropout, the pooler, and values that stand for a default.
_NO_EFFECT = {
    *("_name_or_path", "architectures", "chunk_size_feed_forward", "directionality", "dtype", "finetuning_task"),
    *("gradient_checkpointing", "id2label", "initializer_range", "label2id", "output_attentions", "output_past"),
    *("output_hidden_states", "problem_type", "return_dict", "tie_word_embeddings", "torchscript"),
    *("transformers_version", "use_cache"),
}
_DEFAULTS = (None, "absolute")


def load_encoder(
    name: str,
    pooling: str | None = None,
    normalize: bool | None = None,
    truncate_dim: int | None = None,
    **options: Annotated[Any, SentenceEncoder.from_pretrained],
) -> Encoder:
    """Load an encoder on the CPU, in evaluation mode.

    Args:
        name: a file of word vectors (`.txt` or `.vec`, gzipped or not), static embeddings of model2vec or
            sentence-transformers, or any name that SentenceEncoder.from_pretrained takes.
        normalize: scale vectors to length 1; None keeps the encoder's own setting.
        truncate_dim: how many of the first dimensions to keep.
        pooling, options: those of SentenceEncoder.from_pretrained, which replace a transformer's own settings. It is
            a UserError to give them for another encoder.
    """
    averaged: AveragedVectors | None = None
    if name.endswith((".txt", ".vec", ".txt.gz", ".vec.gz")) and not Path(name).is_dir():
        averaged = WordVectors.from_file(name)
    elif not Path(name).is_file():
        averaged = read_static_embeddings(resolve(name))
    if averaged:
        given = [(option, value) for option, value in {"pooling": pooling, **options}.items() if value is not None]
        if given:
            option, value = given[0]
            raise UserError(f"{option}={value}: {name} has no transformer, which this option is for")
        averaged.normalize = averaged.normalize if normalize is None else normalize
        if truncate_dim is not None and not 1 <= truncate_dim <= averaged.dim:
            raise UserError(f"truncate_dim={truncate_dim}: the vectors of {name} have {averaged.dim} dimensions")
        averaged.vectors = averaged.vectors[:, :truncate_dim].contiguous()
        return averaged
    return SentenceEncoder.from_pretrained(
        name, pooling=pooling, normalize=normalize, truncate_dim=truncate_dim, **options
    )


def computation(encoder: SentenceEncoder) -> str:
    """Return what decides vectors beside weights and settings, as JSON: the backbone's config and the tokenizer."""
    config, tokenizer = encoder.backbone.config.to_dict(), encoder.tokenizer
    kept = {name for name, value in config.items() if value not in _DEFAULTS and not re.search("drop|^pooler_", name)}
    known = {name: config[name] for name in kept - _NO_EFFECT}
    words = json.loads(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else tokenizer.get_vocab()
    tokenization = {name: value for name, value in words.items() if name not in ("padding", "truncation")}
    return json.dumps([known, tokenization, tokenizer.truncation_side], sort_keys=True, default=str)


def fingerprint(encoder: Any, postprocess: PostProcess | None = None) -> str | None:
    """Return a hash of the weights, settings and post-processing, which determine an encoder's vectors.

    `postprocess` is applied after the encoder's own. The hash is None if the encoder is a class of another kind, or
    the post-processing is not fitted.
    """
    if not isinstance(encoder, Encoder) or (postprocess and not postprocess.fitted):
        return None
    if isinstance(encoder, SentenceEncoder):
        tensors, settings = _of_transformer(encoder)
        steps = [encoder.postprocess, postprocess]
    else:
        tensors, settings = _of_averaged(encoder)
        steps = [postprocess]
    for number, step in enumerate(filter(None, steps)):
        tensors |= {f"{step.name}.{number}.{name}": tensor for name, tensor in step.tensors().items()}
    return hash_tensors(tensors, *settings)


def _of_transformer(encoder: SentenceEncoder) -> tuple[dict[str, Tensor], list[Any]]:
    """Return the tensors and the settings that determine an encoder's vectors before its post-processing."""
    tensors = encoder.backbone.state_dict() | encoder.pooling_layer.state_dict(prefix="pooling.")
    if encoder.projection is not None and is_kept(encoder.head):
        tensors |= encoder.projection.state_dict(prefix="head.")
    settings = [encoder.pooling, encoder.max_length, encoder.normalize, *encoder.templates.texts[:1]]
    settings.append(computation(encoder))
    others = {
        "without the template's bias": encoder.template_bias == "always",
        "template as text": encoder.template_as_text != "never",
        "with a final period": encoder.final_period,
        f"head {encoder.head}": is_kept(encoder.head) and encoder.head not in HEADS,
        f"prompts {encoder.prompts}": encoder.prompts,
        f"truncated to {encoder.truncate_dim}": encoder.truncate_dim,
    }
    settings += [text for text, is_set in others.items() if is_set]
    if type(encoder) is not SentenceEncoder:  # it may read all templates, and have numbers of its own
        attributes = {name: value for name, value in vars(encoder).items() if isinstance(value, int | float | str)}
        settings += [type(encoder).__name__, encoder.templates.texts, attributes]
    return tensors, settings


def _of_averaged(encoder: AveragedVectors) -> tuple[dict[str, Tensor], list[Any]]:
    """Return the vectors, and the settings and words or tokens that determine which of them are averaged."""
    settings = {name: value for name, value in vars(encoder).items() if name != "vectors"}
    if isinstance(encoder, StaticEmbeddings):
        settings["tokenizer"] = encoder.tokenizer.to_str()
    return {"vectors": encoder.vectors}, [type(encoder).__name__, settings]
