"""Masked language modelling with a sentence vector: the loss from the parts of transformers' BERT, and its networks."""

import math

import pytest
import torch
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.losses.sentence_mlm import SentenceMaskedLanguageModeling
from transformers import AutoModelForMaskedLM

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.token_masking import NOT_CHOSEN
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw, embedded
from tests.losses.networks import attached, load, states_after, tokens_and_vectors
from tests.tiny_models import ARCHITECTURES


@pytest.fixture
def folder(make_masked_language_model):
    return make_masked_language_model("bert")


def batch_of(encoder):
    inputs, pooled = tokens_and_vectors(encoder)
    return embedded(torch.zeros_like(pooled), inputs, pooled=pooled)


def loss_of_parts(term, whole, masked, labels, mask, sentences):
    """Compute the loss one token at a time, in passes of one sequence through the parts of BERT."""
    losses = []
    for ids, wanted, own, sentence in zip(masked, labels, mask, sentences, strict=True):
        with torch.no_grad():  # layers 1 and 2 of the checkpoint
            tokens = whole(ids[None], attention_mask=own[None], output_hidden_states=True).hidden_states[2][0]
        scores = whole.cls(states_after(term.head_layers, sentence, tokens, own))
        for right, score in zip(wanted.tolist(), scores, strict=True):
            if right != NOT_CHOSEN:
                losses.append(score.logsumexp(dim=0) - score[right])
    return torch.stack(losses).mean()


@pytest.mark.parametrize(("chunk_size", "tokens_per_pass"), [(None, math.inf), (1, math.inf), (None, 1)])
def test_the_loss_equals_that_of_the_parts_of_the_networks(folder, chunk_size, tokens_per_pass):
    encoder = load(folder).double()
    term, batch = attached(SentenceMaskedLanguageModeling(frozen_layers=2), encoder).double(), batch_of(encoder)
    whole = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float64).eval()
    term.chunk_size, encoder.groups.tokens_per_pass = chunk_size, tokens_per_pass
    ids, mask = (batch.inputs[name].flatten(0, 1) for name in ("input_ids", "attention_mask"))
    torch.manual_seed(5)
    masked, labels = term.mask(ids)
    assert (mask == 0).any() and (labels != NOT_CHOSEN).sum() > 5
    sentences = batch.pooled.detach().flatten(0, 1).requires_grad_()
    expected = loss_of_parts(term, whole, masked, labels, mask, sentences)
    layers = [p for name, p in term.head_layers.named_parameters() if "embeddings" not in name]
    gradients = torch.autograd.grad(expected, [sentences, whole.cls.predictions.bias, *layers])
    torch.manual_seed(5)
    loss = term(encoder, batch)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    loss.backward()
    torch.testing.assert_close(batch.pooled.grad.flatten(0, 1), gradients[0])
    assert gradients[0].norm() > 1e-4
    (bias,) = (p for name, p in term.head.named_parameters() if name.endswith("predictions.bias"))
    torch.testing.assert_close(bias.grad, gradients[1])
    for parameter, gradient in zip(layers, gradients[2:], strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert all(p.grad is None for p in encoder.parameters()), "the encoder learns through its vectors only"


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_it_depends_on_the_pooled_vector_for_every_architecture(architecture, make_masked_language_model):
    encoder = load(make_masked_language_model(architecture))
    term = attached(SentenceMaskedLanguageModeling(frozen_layers=2, probability=1.0), encoder)
    batch = batch_of(encoder)
    term(encoder, batch).backward()
    assert (batch.pooled.grad.flatten(0, 1).norm(dim=1) > 0).all()
    assert all(parameter.grad is None for parameter in encoder.parameters())


@pytest.mark.parametrize("frozen_dropout", [False, True])
def test_the_frozen_layers_are_neither_trained_nor_saved(folder, frozen_dropout):
    encoder = SentenceEncoder.from_pretrained(folder, pooling="cls", head="batch_norm_train_only")
    term = SentenceMaskedLanguageModeling(weight=1.0, frozen_layers=2, layers=1, frozen_dropout=frozen_dropout)
    module = SimCSEModule(encoder, ContrastiveObjective(), adamw(), auxiliary=[term], chunk_size=3)
    frozen = term.frozen.network
    assert (len(frozen.encoder.layer), len(term.head_layers.encoder.layer)) == (2, 1)
    assert frozen.training == frozen_dropout and term.head_layers.training
    assert {name.split(".")[0] for name in term.state_dict()} == {"head", "head_layers"}
    module.prepare()
    with torch.autocast("cpu", torch.bfloat16):
        loss, curves = module.loss(ViewCollator(encoder.tokenizer, 16)([(s,) for s in SENTENCES]))
    loss.backward()
    assert 1 < curves["sentence_mlm"] < 20
    assert all((p.grad is not None) == p.requires_grad for p in module.parameters())
    assert not any(p.requires_grad for p in frozen.parameters())
    copies = [weight for weight in term.parameters() if weight is encoder.backbone.get_input_embeddings().weight]
    assert not copies, "the decoder is a copy"


def test_a_checkpoint_without_a_head_can_get_a_new_one(make_model):
    encoder = load(make_model("bert"))
    with pytest.raises(UserError, match="has no masked-language-model head .*auxiliary.sentence_mlm.head=new"):
        attached(SentenceMaskedLanguageModeling(frozen_layers=2), encoder)
    term = attached(SentenceMaskedLanguageModeling(frozen_layers=2, head="new"), encoder)
    assert 0 < term(encoder, batch_of(encoder)).item() < 20
