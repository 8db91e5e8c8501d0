"""Masked language modelling: the loss against transformers' models, and the saved model."""

import math

import pytest
import torch
from transformers import AutoModelForMaskedLM

from simcse_pl.losses.mlm import NOT_CHOSEN, MaskedLanguageModeling
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.losses.cases import attached, batch_of, load
from tests.tiny_models import ARCHITECTURES


@pytest.fixture
def encoder(make_masked_language_model):
    return load(make_masked_language_model("bert"), head="none").eval()


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_the_loss_equals_that_of_transformers_on_the_same_masked_input(architecture, make_masked_language_model):
    folder = make_masked_language_model(architecture)
    encoder = SentenceEncoder.from_pretrained(folder, pooling="mean")
    whole = AutoModelForMaskedLM.from_pretrained(folder).eval()
    term, batch = attached(MaskedLanguageModeling(), encoder), batch_of(encoder)
    inputs = {name: tensor.flatten(0, 1) for name, tensor in batch.inputs.items()}
    torch.manual_seed(5)
    masked, labels = term.mask(inputs["input_ids"])
    assert 1 < (labels != NOT_CHOSEN).sum() < labels.numel() / 4
    expected = whole(**inputs | {"input_ids": masked}, labels=labels).loss
    torch.manual_seed(5)
    loss = term(encoder, batch)
    assert loss.shape == () and loss.item() == pytest.approx(expected.item(), abs=1e-5)
    loss.backward()
    expected.backward()
    embeddings = encoder.backbone.get_input_embeddings().weight  # of the input and of the decoder
    torch.testing.assert_close(embeddings.grad, whole.get_input_embeddings().weight.grad, atol=1e-5, rtol=0)


def test_without_chosen_tokens_the_loss_is_0_and_every_weight_has_a_gradient(encoder):
    term = attached(MaskedLanguageModeling(), encoder)
    batch = batch_of(encoder)
    batch.inputs = {name: x[..., :1] for name, x in batch.inputs.items()}  # [CLS]
    loss = term(encoder, batch)
    assert loss.item() == 0
    loss.backward()
    both = torch.nn.ModuleList([encoder.backbone, term])
    assert [name for name, weight in both.named_parameters() if weight.grad is None] == []
    assert all((weight.grad == 0).all() for weight in both.parameters())


def test_a_checkpoint_without_a_head_can_get_a_new_one(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("roberta"), pooling="mean")
    with pytest.raises(UserError, match="has no masked-language-model head .*head=new initializes"):
        attached(MaskedLanguageModeling(), encoder)
    loss = attached(MaskedLanguageModeling(head="new"), encoder)(encoder, batch_of(encoder))
    assert 0 < loss.item() < 20 and loss.requires_grad


def test_for_continued_pretraining_it_is_the_loss_of_the_anchors(encoder):
    objective, batch = attached(MaskedLanguageModeling(anchors_only=True), encoder), batch_of(encoder)
    torch.manual_seed(5)
    loss = objective(encoder, batch)
    batch.inputs = {name: x[:, :1] for name, x in batch.inputs.items()}
    torch.manual_seed(5)
    torch.testing.assert_close(loss, attached(MaskedLanguageModeling(), encoder)(encoder, batch))
    assert not batch.embedded
    assert objective.held_out_metrics(torch.tensor(2.0))["perplexity"] == pytest.approx(math.exp(2))


def test_the_saved_model_has_the_trained_backbone_and_head(encoder, tmp_path):
    objective = attached(MaskedLanguageModeling(head="new"), encoder)
    with torch.no_grad():
        for weight in [*encoder.backbone.parameters(), *objective.parameters()]:
            weight.add_(0.1 * torch.randn_like(weight))
    objective.save(encoder, tmp_path)
    objective.save(encoder, tmp_path)  # over an encoder that was saved before
    inputs = encoder.tokenizer(SENTENCES[:2], return_tensors="pt", padding=True)
    whole, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    states = encoder.eval().backbone(**inputs).last_hidden_state
    torch.testing.assert_close(whole.eval()(**inputs).logits[0], objective.head(states[0]), atol=1e-5, rtol=0)
    loaded = SentenceEncoder.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    again = attached(MaskedLanguageModeling(), loaded)  # with the head of the folder
    torch.testing.assert_close(again.head(states[0]), objective.head(states[0]))
