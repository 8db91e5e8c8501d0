"""Sentences `s 0`, `s 1`, ... and their vectors."""

import pytest
import torch

DIM = 32


class Lookup:
    """An `encode` that looks up vectors by sentence, and records the sentences."""

    def __init__(self, vectors):
        self.vectors = {f"s {i}": vector for i, vector in enumerate(vectors)}
        self.encoded = []

    def __call__(self, sentences):
        assert isinstance(sentences, list)
        self.encoded += sentences
        return torch.stack([self.vectors[sentence] for sentence in sentences])


def names(numbers):
    return [f"s {i}" for i in numbers]


@pytest.fixture
def encode():
    """Sentences `s 0` to `s 599`, with vectors whose dimensions have different ranges and whose lengths differ."""
    return Lookup((torch.randn(600, DIM) * torch.rand(DIM) + 0.1 * torch.randn(DIM)) * torch.rand(600, 1) * 9)
