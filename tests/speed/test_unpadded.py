"""Sequences of a batch as one: the vectors, gradients and losses of padded ones, or an error."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AutoModel
from transformers.masking_utils import AttentionMaskInterface

from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.methods.denosent import NoisyReconstruction
from simcse_pl.methods.diffcse import ReplacedTokenDetection
from simcse_pl.methods.infocse import SentenceMaskedLanguageModeling
from simcse_pl.methods.tsdae import DenoisingAutoEncoder
from simcse_pl.models.backbone import first_position, recompute_layers
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.speed import unpadded
from simcse_pl.speed.unpadded import use_unpadded
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw

ROWS = [(SENTENCES[0], SENTENCES[0]), ("", "A dog."), ("No.", " ".join(SENTENCES[:2])), ("A dog.", "A cat.")]
TEMPLATE = 'This sentence : "{sentence}" means [MASK] .'
WITHOUT_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
AUTOENCODERS = DenoisingAutoEncoder, partial(NoisyReconstruction, noise=0, dropout=0, layers=1)
INFOCSE = partial(SentenceMaskedLanguageModeling, frozen_layers=2, layers=1)


def load(folder, pooling="first_last", **options):
    """Return an encoder in training mode and float64."""
    return SentenceEncoder.from_pretrained(folder, pooling, **options).double().train()


def vectors_and_gradients(encoder, chunk_size=None):
    """Return the vectors [rows * views, dim] of `ROWS`, and the gradients of all weights."""
    batch = ViewCollator(encoder.tokenizer, 40, encoder.templates)(ROWS)
    assert batch["attention_mask"].sum() < 0.8 * batch["attention_mask"].numel()
    vectors = encoder.embed(batch, chunk_size).flatten(0, 1)
    (vectors * torch.arange(len(vectors)).unsqueeze(1)).cos().sum().backward()
    return vectors.detach(), {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}


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
    padded = load(make_model(architecture), **options)
    packed = load(make_model(architecture), attn_implementation="unpadded", **options)
    tokens = []
    linear = next(module for module in packed.backbone.modules() if isinstance(module, torch.nn.Linear))
    linear.register_forward_hook(lambda module, inputs, output: tokens.append(output.shape[:-1].numel()))
    if chunk_size:
        recompute_layers(packed.backbone)
    expected, gradients = vectors_and_gradients(padded)
    vectors, found = vectors_and_gradients(packed, chunk_size)
    torch.testing.assert_close(vectors, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(found, gradients, atol=1e-9, rtol=1e-9)
    lengths = ViewCollator(packed.tokenizer, 40, packed.templates)(ROWS)["attention_mask"].sum()
    assert chunk_size or options.get("template") or tokens == [lengths]
    texts = ["", *SENTENCES, "x"]
    for some in (texts, texts[:1], texts[1:2]):
        torch.testing.assert_close(packed.encode(some), padded.encode(some), atol=1e-5, rtol=0)


def test_flash_attention_gets_the_lengths_of_the_sequences(make_model, monkeypatch):
    def kernel(module, query, key, value, mask, cu_seq_lens_q, cu_seq_lens_k, max_length_q, **_):
        assert mask is None and torch.equal(cu_seq_lens_q, cu_seq_lens_k) and cu_seq_lens_q.dtype == torch.int32
        lengths = cu_seq_lens_q.diff().tolist()
        assert max(lengths) <= max_length_q
        parts = zip(*(x.split(lengths, dim=2) for x in (query, key, value)), strict=True)
        return torch.cat([F.scaled_dot_product_attention(*part) for part in parts], dim=2).transpose(1, 2), None

    name = "flash_attention_2"
    monkeypatch.setitem(AttentionInterface._global_mapping, name, kernel)
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, name, AttentionMaskInterface()[name])
    padded, other = (load(make_model("roberta"), **WITHOUT_DROPOUT) for _ in range(2))
    other.backbone.config._attn_implementation_internal = name  # transformers checks that there is a GPU
    use_unpadded(other.backbone, first_position(other.backbone))
    expected, without_kernel = vectors_and_gradients(padded), vectors_and_gradients(other)
    other.zero_grad()
    monkeypatch.setattr(unpadded, "_has_kernels", lambda device, dtype: True)
    for found in (without_kernel, vectors_and_gradients(other)):
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_a_decoder_of_the_process_that_generates_keeps_its_mask(make_model, monkeypatch):
    name = "flash_attention_2"
    for interface in (AttentionInterface, AttentionMaskInterface):
        monkeypatch.setitem(interface._global_mapping, name, interface()[name])
    encoder = load(make_model("roberta"))
    encoder.backbone.config._attn_implementation_internal = name
    use_unpadded(encoder.backbone, 2)
    states = []
    for attention in ("sdpa", name):
        decoder = AutoModel.from_pretrained(make_model("llama")).eval()
        decoder.config._attn_implementation_internal = attention
        mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])  # padding on the left
        cache = decoder(mask[:, :3], attention_mask=mask[:, :3], use_cache=True).past_key_values
        states.append(decoder(mask[:, 3:], attention_mask=mask, past_key_values=cache).last_hidden_state)
    torch.testing.assert_close(*states)


@pytest.mark.parametrize("make_loss", [*AUTOENCODERS, MaskedLanguageModeling, ReplacedTokenDetection, INFOCSE])
def test_losses_that_read_states_are_those_of_padded_sequences(make_loss, make_masked_language_model):
    losses = []
    for attention in (None, "unpadded"):
        encoder = load(make_masked_language_model("bert"), attn_implementation=attention, **WITHOUT_DROPOUT)
        torch.manual_seed(3)
        module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), auxiliary={"other": make_loss()}).double()
        module.prepare()
        losses.append(module.loss(module.batch_of(ViewCollator(encoder.tokenizer, 40)(ROWS))))
    torch.testing.assert_close(losses[1], losses[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [*((name, "has its own attention") for name in ("mpnet", "t5")), ("gpt2", "cannot encode: ")],
)
def test_a_model_that_cannot_is_an_error(architecture, reason, make_model):
    with pytest.raises(UserError, match=reason):
        load(make_model(architecture), attn_implementation="unpadded")


def test_a_pooling_that_reads_the_attention_is_an_error(make_model):
    with pytest.raises(UserError, match="pooling=ditto_1_2: it needs padding: leave attn_implementation=unpadded out"):
        load(make_model("bert"), pooling="ditto_1_2", attn_implementation="unpadded")


def test_a_model_that_mixes_sequences_is_an_error(make_model):
    encoder = load(make_model("bert"), attn_implementation="unpadded")
    encoder.backbone.embeddings.register_forward_hook(lambda *call: call[-1] + call[-1].roll(1, dims=1))
    with pytest.raises(UserError, match="^attn_implementation: BertModel mixes sequences"):
        SentenceEncoder(encoder.backbone, encoder.tokenizer)
