"""Length groups: minimal work, and the vectors and gradients of one padded pass."""

import itertools
import math
import random

import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.length_groups import longest_of_groups
from tests.conftest import SENTENCES

PASS = 256  # the cost of one more pass, in tokens


def work(lengths, longest):
    """Return the number of tokens, including padding, plus the cost of each pass."""
    padded = [next(limit for limit in sorted(longest) if limit >= length) for length in lengths]
    return sum(padded) + PASS * len(set(padded))


@pytest.mark.parametrize("seed", range(2))
def test_no_other_split_is_less_work(seed):
    lengths = random.Random(seed).choices(range(3, 12), k=200)
    *shorter, longest = sorted(set(lengths))
    splits = [[*chosen, longest] for n in range(len(shorter) + 1) for chosen in itertools.combinations(shorter, n)]
    assert work(lengths, longest_of_groups(lengths)) == min(work(lengths, split) for split in splits)
    assert longest_of_groups(lengths, math.inf) == [longest] and longest_of_groups(lengths, 0) == sorted(set(lengths))


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
def test_vectors_and_gradients_equal_those_of_one_padded_pass(architecture, make_model):
    encoder = SentenceEncoder.from_pretrained(
        make_model(architecture), pooling="first_last", head="mlp", dropout=0.0, attention_dropout=0.0
    ).double()
    sentences = [" ".join(SENTENCES[: 1 + i % 3]) if i % 4 else "No." for i in range(60)]
    sentences[1] += f" {encoder.tokenizer.pad_token} in a text"
    inputs = encoder.tokenizer(sentences, padding=True, truncation=True, max_length=60, return_tensors="pt")
    assert len(longest_of_groups(inputs["attention_mask"].sum(dim=1).tolist())) > 1 and encoder.groups.ignores_padding
    results = []
    for tokens_per_pass in (math.inf, PASS):
        encoder.train().groups.tokens_per_pass = tokens_per_pass
        encoder.zero_grad()
        vectors = encoder(dict(inputs), in_groups=True)
        (vectors * torch.arange(len(vectors)).unsqueeze(1)).cos().sum().backward()
        results.append([vectors.detach(), *(p.grad for p in encoder.parameters() if p.grad is not None)])
    padded, grouped = results
    assert len(padded) == len(grouped)
    for ours, theirs in zip(grouped, padded, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)
