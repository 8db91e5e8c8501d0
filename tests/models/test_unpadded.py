"""Sequences of a batch as one: the vectors, gradients and losses of padded ones, or an error."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.inner_layer import InnerLayer
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.methods.diffcse import ReplacedTokenDetection
from simcse_pl.methods.infocse import SentenceMaskedLanguageModeling
from simcse_pl.models.backbone import recompute_layers
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw

ROWS = [(SENTENCES[0], SENTENCES[0]), ("", "A dog."), ("No.", " ".join(SENTENCES[:2])), ("A dog.", "A cat.")]
TEMPLATE = 'This sentence : "{sentence}" means [MASK] .'
WITHOUT_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


def load_both(folder, pooling="first_last", **options):
    """Return an encoder that pads and one that does not, in training mode and float64."""
    pads = (None, True)
    return [SentenceEncoder.from_pretrained(folder, pooling, unpadded=one, **options).double().train() for one in pads]


def vectors_and_gradients(encoder, chunk_size=None):
    """Return the vectors [rows * views, dim] of `ROWS`, and the gradients of all weights."""
    batch = ViewCollator(encoder.tokenizer, 40, encoder.templates)(ROWS)
    assert batch["attention_mask"].sum() < 0.8 * batch["attention_mask"].numel()
    vectors = encoder.embed(batch, chunk_size).flatten(0, 1)
    (vectors * torch.arange(len(vectors)).unsqueeze(1)).cos().sum().backward()
    return vectors.detach(), {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}


def count_tokens(encoder):
    """Return a list to which each pass through the first linear layer adds its number of tokens."""
    tokens = []
    linear = next(module for module in encoder.backbone.modules() if isinstance(module, torch.nn.Linear))
    linear.register_forward_hook(lambda module, inputs, output: tokens.append(output.shape[:-1].numel()))
    return tokens


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        *((name, WITHOUT_DROPOUT) for name in ("bert", "roberta", "distilbert", "modernbert")),
        *((name, {"pooling": "last_token"}) for name in ("llama", "qwen3")),
        ("llama", {"bidirectional": True}),
        ("roberta", {"pooling": "mask", "template": TEMPLATE, "template_bias": "padded_train_only"} | WITHOUT_DROPOUT),
    ],
)
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_vectors_and_gradients_are_those_of_padded_sequences(architecture, options, chunk_size, make_model):
    padded, unpadded = load_both(make_model(architecture), **options)
    tokens = count_tokens(unpadded)
    if chunk_size:
        recompute_layers(unpadded.backbone)
    expected, gradients = vectors_and_gradients(padded)
    vectors, found = vectors_and_gradients(unpadded, chunk_size)
    torch.testing.assert_close(vectors, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(found, gradients, atol=1e-9, rtol=1e-9)
    lengths = ViewCollator(unpadded.tokenizer, 40, unpadded.templates)(ROWS)["attention_mask"].sum()
    assert chunk_size or options.get("template") or tokens == [lengths]
    texts = ["", *SENTENCES, "x"]
    for some in (texts, texts[:1], texts[1:2]):
        torch.testing.assert_close(unpadded.encode(some), padded.encode(some), atol=1e-5, rtol=0)


def test_flash_attention_gets_the_lengths_of_the_sequences(make_model, monkeypatch):
    def attention(module, query, key, value, mask, cu_seq_lens_q, cu_seq_lens_k, max_length_q, **_):
        assert mask is None and torch.equal(cu_seq_lens_q, cu_seq_lens_k) and cu_seq_lens_q.dtype == torch.int32
        lengths = cu_seq_lens_q.diff().tolist()
        assert max(lengths) <= max_length_q
        parts = zip(*(x.split(lengths, dim=2) for x in (query, key, value)), strict=True)
        return torch.cat([F.scaled_dot_product_attention(*part) for part in parts], dim=2).transpose(1, 2), None

    padded, unpadded = load_both(make_model("roberta"), **WITHOUT_DROPOUT)
    monkeypatch.setitem(AttentionInterface._global_mapping, "flash_attention_2", attention)
    unpadded.backbone.config._attn_implementation_internal = "flash_attention_2"  # no CPU has its kernels
    expected, found = vectors_and_gradients(padded), vectors_and_gradients(unpadded)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    "make_loss",
    [
        MaskedLanguageModeling,
        lambda: InnerLayer(ContrastiveLoss()),
        ReplacedTokenDetection,
        lambda: SentenceMaskedLanguageModeling(frozen_layers=2, layers=1),
    ],
    ids=["mlm", "inner_layer", "diffcse", "infocse"],
)
def test_losses_that_read_states_are_those_of_padded_sequences(make_loss, make_masked_language_model):
    losses = []
    for encoder in load_both(make_masked_language_model("bert"), **WITHOUT_DROPOUT):
        torch.manual_seed(3)
        module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), auxiliary={"other": make_loss()}).double()
        module.prepare()
        losses.append(module.loss(module.batch_of(ViewCollator(encoder.tokenizer, 40)(ROWS))))
    torch.testing.assert_close(losses[1], losses[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize("architecture", ["mpnet", "gemma2"])
def test_a_model_that_would_mix_sequences_is_an_error(architecture, make_model):
    with pytest.raises(UserError, match="^unpadded=true: .*Model cannot read several sequences as one"):
        SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean", unpadded=True)


def test_cuda_graphs_of_unpadded_sequences_are_an_error(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", unpadded=True)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), compile="reduce-overhead")
    with pytest.raises(UserError, match="^module.compile=reduce-overhead: model.unpadded=true"):
        module.prepare()
