"""Batches are padded as the tokenizer pads them."""

import pytest
import torch

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import padded, tokenize
from tests.conftest import SENTENCES
from tests.tiny_models import ARCHITECTURES


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_is_the_tokenizers_own(architecture, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean")
    ours = padded(tokenize(encoder.tokenizer, SENTENCES, 12), encoder.tokenizer)
    theirs = encoder.tokenizer(SENTENCES, padding=True, truncation=True, max_length=12, return_tensors="pt")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
