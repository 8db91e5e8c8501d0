"""Masked language modelling: the loss against transformers' models, and the saved model."""

import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForMaskedLM

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.mlm import NOT_CHOSEN, MaskedLanguageModeling, MaskedLanguageModelingObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, embedded
from tests.losses.networks import PAIRS, attached
from tests.tiny_models import ARCHITECTURES


@pytest.fixture
def encoder(make_masked_language_model):
    return SentenceEncoder.from_pretrained(make_masked_language_model("bert"), pooling="mean")


def views(encoder, rows=PAIRS):
    inputs = ViewCollator(encoder.tokenizer, 32)(rows)
    return embedded(torch.zeros(*inputs["input_ids"].shape[:2], encoder.dim), inputs)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_the_loss_equals_that_of_transformers_on_the_same_masked_input(architecture, make_masked_language_model):
    folder = make_masked_language_model(architecture)
    encoder = SentenceEncoder.from_pretrained(folder, pooling="mean")
    whole = AutoModelForMaskedLM.from_pretrained(folder).eval()
    term, batch = attached(MaskedLanguageModeling(), encoder), views(encoder)
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
    batch = views(encoder, [("", ""), ("", "")])
    loss = term(encoder, replace(batch, inputs={name: x[..., :2] for name, x in batch.inputs.items()}))  # [CLS] [SEP]
    assert loss.item() == 0
    loss.backward()
    both = torch.nn.ModuleList([encoder.backbone, term])
    assert [name for name, weight in both.named_parameters() if weight.grad is None] == []
    assert all((weight.grad == 0).all() for weight in both.parameters())


def test_a_checkpoint_without_a_head_can_get_a_new_one(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("roberta"), pooling="mean")
    with pytest.raises(UserError, match="has no masked-language-model head .*auxiliary.mlm.head=new"):
        attached(MaskedLanguageModeling(), encoder)
    loss = attached(MaskedLanguageModeling(head="new"), encoder)(encoder, views(encoder))
    assert 0 < loss.item() < 20 and loss.requires_grad


def test_as_the_objective_it_is_the_loss_of_the_anchors(encoder):
    objective = attached(MaskedLanguageModelingObjective(), encoder)
    term = attached(MaskedLanguageModeling(), encoder)
    batch = views(encoder)
    anchors = replace(batch, inputs={name: x[:, :1] for name, x in batch.inputs.items()})
    torch.manual_seed(5)
    expected = term(encoder, anchors)
    torch.manual_seed(5)
    assert objective(batch).item() == pytest.approx(expected.item(), abs=1e-6) and expected > 1
    assert objective.held_out_metrics(torch.tensor(2.0))["perplexity"] == pytest.approx(math.exp(2))


def test_the_saved_model_has_the_trained_backbone_and_head(encoder, tmp_path):
    objective = attached(MaskedLanguageModelingObjective(head="new"), encoder)
    with torch.no_grad():
        for weight in [*encoder.backbone.parameters(), *objective.parameters()]:
            weight.add_(0.1 * torch.randn_like(weight))
    objective.save(encoder, tmp_path)
    objective.save(encoder, tmp_path)  # over an encoder that was saved before
    inputs = encoder.tokenizer(SENTENCES[:2], return_tensors="pt", padding=True)
    whole, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    states = encoder.eval().backbone(**inputs).last_hidden_state
    torch.testing.assert_close(whole.eval()(**inputs).logits[0], objective.term.head(states[0]), atol=1e-5, rtol=0)
    loaded = SentenceEncoder.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded.encode(SENTENCES), encoder.encode(SENTENCES))
    again = attached(MaskedLanguageModelingObjective(), loaded)  # with the head of the folder
    torch.testing.assert_close(again.term.head(states[0]), objective.term.head(states[0]))
