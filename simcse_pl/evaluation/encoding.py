"""Functions around `encode`: with a cache, and followed by a post-processing."""

from collections.abc import Mapping

import torch
from torch import Tensor

from simcse_pl.postprocessing.post_process import PostProcess
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import Encode, unit_vectors


def encode_once(encode: Encode, sentences: list[str]) -> Encode:
    """Return an `encode` function that has the vectors of `sentences`, because several tasks share sentences.

    Other sentences are encoded at each call. UserError is raised if a vector is not finite.
    """

    def checked(texts: list[str]) -> Tensor:
        vectors = encode(texts)
        bad = (~vectors.isfinite()).any(dim=1).nonzero()
        if len(bad):
            raise UserError(f"the encoder's vector of {texts[int(bad[0])]!r} is not finite")
        return vectors

    row = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentences))}
    cache = checked(list(row)) if row else torch.empty(0)

    def cached(texts: list[str]) -> Tensor:
        return cache[[row[text] for text in texts]] if row and row.keys() >= set(texts) else checked(texts)

    return cached


def postprocessed(
    encode: Encode,
    postprocess: PostProcess,
    device: str | torch.device = "cpu",
    normalize: bool = False,
    fit_on: Mapping[frozenset[str], list[str]] | None = None,
) -> Encode:
    """Return an `encode` function followed by a post-processing, in the order of `SentenceEncoder.encode`.

    Args:
        encode: function from sentences to vectors [n, dim] that are not normalized.
        postprocess: if it is not fitted, each call fits it on the sentences of the call, which are those of one task.
        device: device of the fit.
        normalize: scale the vectors to length 1 after the post-processing.
        fit_on: the sentences to fit on in place of those of a call, see suite.released_fitting_sets.
    """
    fit_each_call = not postprocess.fitted

    def transformed(texts: list[str]) -> Tensor:
        vectors = encode(texts).to(device)
        if fit_each_call:
            others = (fit_on or {}).get(frozenset(texts))
            postprocess.fit(encode(others).to(device) if others else vectors)
        vectors = postprocess.transform(vectors).cpu()
        return unit_vectors(vectors) if normalize else vectors

    return transformed
