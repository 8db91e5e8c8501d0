"""Batches of views."""

import numpy as np
import pytest
import torch

from simcse_pl.data.collators import ViewCollator
from simcse_pl.models.backbone import load_tokenizer
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import padded, tokenize
from tests.conftest import ARCHITECTURES, SENTENCES


@pytest.fixture
def tokenizer(make_model):
    return load_tokenizer(str(make_model("bert")))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_is_the_tokenizers_own(architecture, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean")
    ours = padded(tokenize(encoder.tokenizer, SENTENCES, 12), encoder.tokenizer)
    theirs = encoder.tokenizer(SENTENCES, padding=True, truncation=True, max_length=12, return_tensors="pt")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_row_may_have_text_and_tokens(tokenizer):
    rows = [("a b", "c d e"), ("f", "g")]
    mixed = [(np.array(tokenize(tokenizer, [first], 9)[0], dtype=np.uint16), second) for first, second in rows]
    views = ViewCollator(tokenizer, 9)
    assert all(torch.equal(tensor, views(rows)[name]) for name, tensor in views(mixed).items())
