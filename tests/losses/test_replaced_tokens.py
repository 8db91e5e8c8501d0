"""Replaced token detection: the loss from the parts of transformers' BERT, its edits, and its networks."""

import math

import pytest
import torch
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.losses.replaced_tokens import ReplacedTokenDetection
from transformers import AutoModelForMaskedLM

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw, embedded
from tests.losses.networks import attached, load, states_after, tokens_and_vectors
from tests.tiny_models import ARCHITECTURES


@pytest.fixture
def folder(make_masked_language_model):
    return make_masked_language_model("bert")


@pytest.fixture
def encoder(folder):
    return load(folder)


def batch_of(encoder):
    inputs, embeddings = tokens_and_vectors(encoder)
    return embedded(embeddings, inputs)


def loss_of_parts(discriminator, classifier, edited, ids, mask, sentences):
    """Compute the loss one token at a time, in passes of one sequence through the parts of a BertModel."""
    losses = []
    for new, old, own, sentence in zip(edited, ids, mask, sentences, strict=True):
        states = states_after(discriminator, sentence, discriminator.embeddings(input_ids=new[None])[0], own)
        for before, after, state in zip(old.tolist(), new.tolist(), states, strict=True):
            logits = classifier.weight @ state + classifier.bias
            losses.append(-(logits - logits.logsumexp(dim=0))[int(before != after)])  # padding counts, as equal
    return torch.stack(losses).mean()


@pytest.mark.parametrize(("chunk_size", "tokens_per_pass"), [(None, math.inf), (1, math.inf), (None, 1)])
def test_the_loss_equals_that_of_the_parts_of_the_networks(encoder, folder, chunk_size, tokens_per_pass):
    encoder.double()
    term = attached(ReplacedTokenDetection(generator=folder), encoder).double()
    generator = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float64).eval()
    term.generator.network.eval()
    term.chunk_size, encoder.groups.tokens_per_pass = chunk_size, tokens_per_pass
    batch = batch_of(encoder)
    ids, mask = (batch.inputs[name].flatten(0, 1) for name in ("input_ids", "attention_mask"))
    torch.manual_seed(5)
    masked, _ = term.mask(ids)
    with torch.no_grad():
        predicted = generator(masked, attention_mask=mask).logits.argmax(dim=-1)
    edited = predicted * mask + ids * (1 - mask)
    edited[:, 0] = ids[:, 0]
    assert (mask == 0).any() and 0.1 < (edited != ids).double().mean() < 1
    sentences = batch.embeddings.detach().flatten(0, 1).requires_grad_()
    expected = loss_of_parts(term.discriminator, term.classifier, edited, ids, mask, sentences)
    parameters = [p for p in term.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(expected, [sentences, *parameters], allow_unused=True)
    torch.manual_seed(5)
    loss = term(encoder, batch)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    loss.backward()
    torch.testing.assert_close(batch.embeddings.grad.flatten(0, 1), gradients[0])
    assert gradients[0].norm() > 1e-4
    for parameter, gradient in zip(parameters, gradients[1:], strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_it_depends_on_the_embedding_for_every_architecture(architecture, make_masked_language_model):
    folder = make_masked_language_model(architecture)
    encoder = load(folder)
    term, batch = attached(ReplacedTokenDetection(generator=folder), encoder), batch_of(encoder)
    term(encoder, batch).backward()
    assert (batch.embeddings.grad.flatten(0, 1).norm(dim=1) > 0).all()
    assert all(parameter.grad is None for parameter in encoder.parameters())


def test_without_a_generator_random_tokens_replace_the_chosen_ones(encoder):
    ids = torch.full((2000, 100), 50)
    edited = attached(ReplacedTokenDetection(probability=0.3), encoder).edit(ids, torch.ones_like(ids))
    assert (edited != ids).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert edited[edited != 50].unique().numel() == len(encoder.tokenizer) - 1


def test_the_discriminator_is_a_trained_copy_of_the_whole_backbone_and_the_generator_is_frozen(folder):
    encoder = load(folder)
    embeddings = encoder.backbone.embeddings.word_embeddings.weight
    term = ReplacedTokenDetection(generator=folder)
    module = SimCSEModule(encoder, ContrastiveObjective(), adamw(), auxiliary=[term], freeze_layers=1)
    assert not embeddings.requires_grad
    for own, copied in zip(encoder.backbone.parameters(), term.discriminator.parameters(), strict=True):
        assert torch.equal(own, copied) and own is not copied and copied.requires_grad
    names = {name.split(".")[0] for name, _ in term.named_parameters()}
    assert names == {"discriminator", "classifier"} == {name.split(".")[0] for name in term.state_dict()}
    assert term.generator.network.training  # with dropout, as in the released code
    module.prepare()
    loss, curves = module.loss(ViewCollator(encoder.tokenizer, 16)([(s,) for s in SENTENCES]))
    loss.backward()
    assert curves["replaced_token_detection"] > 0
    assert all((p.grad is not None) == p.requires_grad for p in module.parameters())
    assert not any(p.requires_grad for p in term.generator.network.parameters())


def test_a_step_with_the_batch_norm_head_and_half_precision_is_finite(folder):
    encoder = SentenceEncoder.from_pretrained(folder, pooling="cls", head="batch_norm_train_only")
    term = ReplacedTokenDetection(weight=1.0, generator=folder)
    module = SimCSEModule(encoder, ContrastiveObjective(), adamw(), auxiliary=[term], chunk_size=3)
    module.prepare()
    with torch.autocast("cpu", torch.bfloat16):
        loss, curves = module.loss(ViewCollator(encoder.tokenizer, 16)([(s,) for s in SENTENCES]))
    loss.backward()
    assert curves["replaced_token_detection"].dtype == torch.float32
    assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())


def test_a_generator_with_another_vocabulary_is_an_error(encoder, make_masked_language_model):
    other = make_masked_language_model("roberta")
    option = f"auxiliary.replaced_token_detection.generator={other}"
    with pytest.raises(UserError, match=f"^{option}: its vocabulary must be that of the trained encoder$"):
        attached(ReplacedTokenDetection(generator=other), encoder)
