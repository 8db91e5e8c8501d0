"""Similarities of embeddings, in float32 or more."""

from typing import Literal

import torch
from torch import Tensor

from simcse_pl.utils.tensors import at_least_float32, unit_vectors

Similarity = Literal["cosine", "dot"]


def similarity_matrix(queries: Tensor, keys: Tensor, similarity: Similarity = "cosine") -> Tensor:
    """Return the similarity of every query [n, dim] with every key [m, dim], [n, m].

    The similarity is `cosine`, or `dot` for the inner product (Table D.1). It is in float32 if the
    embeddings are in half precision.
    """
    with torch.autocast(queries.device.type, enabled=False):  # it would multiply in half precision
        scaled = unit_vectors if similarity == "cosine" else at_least_float32
        return scaled(queries) @ scaled(keys).T


def paired_similarity(first: Tensor, second: Tensor, similarity: Similarity = "cosine") -> Tensor:
    """Return the similarity of each pair of vectors, [...], for two tensors [..., dim]; see `similarity_matrix`."""
    scaled = unit_vectors if similarity == "cosine" else at_least_float32
    return (scaled(first) * scaled(second)).sum(dim=-1)
