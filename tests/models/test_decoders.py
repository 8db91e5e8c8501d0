"""Decoders as backbones, against transformers' own models of single sentences without padding."""

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.support.helpers import library_vectors
from tests.support.tiny_models import DECODERS

TEXTS = [*SENTENCES, "x"]


def states_of(folder, text, **config):
    """Return the token ids of a text, and the model's states [tokens, dim] without padding."""
    own = AutoConfig.from_pretrained(folder)
    for name, value in config.items():
        setattr(own, name, value)
    model = AutoModel.from_pretrained(folder, config=own).eval()
    ids = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    with torch.no_grad():
        return ids, model(input_ids=torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.parametrize("architecture", DECODERS)
def test_the_last_token_is_that_of_the_sentence_with_padding(architecture, make_model):
    folder = make_model(architecture)
    encoder = SentenceEncoder.from_pretrained(folder, pooling="last_token")
    expected = torch.stack([states_of(folder, text)[1][-1] for text in TEXTS])
    torch.testing.assert_close(encoder.encode(TEXTS), expected, atol=1e-5, rtol=0)
    inputs = encoder.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(encoder(dict(inputs)), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("architecture", DECODERS)
def test_without_the_causal_mask_every_token_sees_all_others(architecture, make_model, tmp_path):
    """Folders keep the setting: transformers and sentence-transformers read it."""
    folder = make_model(architecture)
    encoder = SentenceEncoder.from_pretrained(folder, pooling="mean", bidirectional=True)
    expected = torch.stack([states_of(folder, text, is_causal=False)[1].mean(dim=0) for text in TEXTS])
    torch.testing.assert_close(encoder.encode(TEXTS), expected, atol=1e-5, rtol=0)
    causal = SentenceEncoder.from_pretrained(folder, pooling="mean").encode(TEXTS)
    assert (causal - expected).abs().max() > 1e-2
    encoder.save_pretrained(tmp_path)
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path).encode(TEXTS), encoder.encode(TEXTS))
    torch.testing.assert_close(library_vectors(tmp_path, TEXTS), expected, atol=1e-5, rtol=0)
    again = SentenceEncoder.from_pretrained(tmp_path, bidirectional=False)
    torch.testing.assert_close(again.encode(TEXTS), causal, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("gpt_neo", {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "attention_types": [[["global"], 1]]}),
        ("mpt", {"d_model": 32, "n_layers": 1, "n_heads": 2}),
    ],
)
def test_a_causal_mask_that_cannot_be_switched_off_is_an_error(kind, size, make_model, tmp_path):
    config = AutoConfig.for_model(kind, vocab_size=400, **size)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(make_model("gpt2")).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"^bidirectional=true: the causal mask of {kind} cannot be switched off"):
        SentenceEncoder.from_pretrained(tmp_path, pooling="mean", bidirectional=True)


def test_a_causal_mask_that_cannot_be_switched_on_is_an_error(make_model):
    folder = make_model("gemma3_text", use_bidirectional_attention=True)
    with pytest.raises(UserError, match="^bidirectional=false: the causal mask of gemma3_text cannot be switched on"):
        SentenceEncoder.from_pretrained(folder, pooling="mean", bidirectional=False)


@pytest.mark.parametrize("pooling", ["span", "last_token"])
def test_echo_pools_over_the_second_occurrence(pooling, make_model):
    folder = make_model("llama")
    encoder = SentenceEncoder.from_pretrained(folder, pooling=pooling, template="Say: {sentence} Again: {sentence}</s>")
    vectors = encoder.encode(TEXTS)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    for text, vector in zip(TEXTS, vectors, strict=True):
        say, own, again = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in ("Say:", text, " Again:"))
        ids = [tokenizer.bos_token_id, *say, *own, *again, *own, tokenizer.eos_token_id]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        expected = states[-1] if pooling == "last_token" else states[-len(own) - 1 : -1].mean(dim=0)
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=0)
