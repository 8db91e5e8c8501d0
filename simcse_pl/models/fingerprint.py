"""Fingerprints of encoders, by which `simcse export` finds their results, and the cache their vectors."""

from typing import Any

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.tensors import hash_tensors


def fingerprint(encoder: Any, postprocess: PostProcess | None = None) -> str | None:
    """Return a hash of the weights, settings and post-processing, which determine an encoder's vectors.

    `postprocess` is applied after the encoder's own. The hash is None if the encoder is not a SentenceEncoder, or the
    post-processing is not fitted.
    """
    if not isinstance(encoder, SentenceEncoder) or (postprocess and not postprocess.fitted):
        return None
    tensors = encoder.backbone.state_dict() | encoder.pooling_layer.state_dict(prefix="pooling.")
    if encoder.projection is not None and encoder.head in ("mlp", "transform"):
        tensors |= encoder.projection.state_dict(prefix="head.")
    for place, own in enumerate(one for one in (encoder.postprocess, postprocess) if one):
        tensors |= {f"{own.name}.{place}.{name}": tensor for name, tensor in own.tensors().items()}
    settings = [encoder.pooling, encoder.max_length, encoder.normalize, *encoder.templates.texts[:1]]
    if encoder.template_bias == "always":
        settings.append("without the template's bias")
    if encoder.template_as_text != "never":
        settings.append("template as text")
    if encoder.final_period:
        settings.append("with a final period")
    if encoder.truncate_dim:
        settings.append(f"truncated to {encoder.truncate_dim}")
    return hash_tensors(tensors, *settings)
