"""Masked next token prediction: the loss of transformers' causal language model without its causal mask."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from simcse_pl.losses.mlm import NOT_CHOSEN
from simcse_pl.methods.mntp import MaskedNextTokenPrediction
from simcse_pl.utils.errors import UserError
from tests.losses.cases import attached, batch_of, load
from tests.support.helpers import composed

OPTIONS = {"pooling": "mean", "head": "none", "dropout": None, "attention_dropout": None, "bidirectional": True}


@pytest.fixture(scope="module", params=["gpt2", "llama", "opt"])
def folder(request, make_model, tmp_path_factory):
    """The folder of a causal language model with its head."""
    source, folder = make_model(request.param), tmp_path_factory.mktemp("causal")
    load(source, **OPTIONS | {"bidirectional": False}).tokenizer.save_pretrained(folder)
    AutoModelForCausalLM.from_pretrained(source).save_pretrained(folder)
    return folder


def test_the_loss_is_that_of_the_causal_language_model_without_causal_mask(folder):
    encoder = load(folder, **OPTIONS).double().eval()
    loss = attached(MaskedNextTokenPrediction(0.5, anchors_only=True), encoder)
    assert loss._mask_token == encoder.tokenizer.convert_tokens_to_ids("_") and encoder.tokenizer.mask_token is None
    torch.manual_seed(0)
    batch, seen = batch_of(encoder), []
    mask = loss.mask
    loss.mask = lambda *given: seen.append(mask(*given)) or seen[0]
    value = loss(batch)
    masked, labels = seen[0]
    ids, attended = (batch.inputs[name][:, 0] for name in ("input_ids", "attention_mask"))
    chosen = labels != NOT_CHOSEN
    assert labels[chosen].equal(ids[chosen]) and not chosen[:, 0].any() and not chosen[attended == 0].any()
    assert (masked[chosen] == loss._mask_token).any() and 0.2 < chosen.sum() / attended.sum() < 0.6
    model = AutoModelForCausalLM.from_pretrained(folder).double().eval()
    setattr(model, model.base_model_prefix, encoder.backbone)
    expected = model(input_ids=masked, attention_mask=attended, labels=labels).loss
    torch.testing.assert_close(value.float(), expected)


def test_the_recipe_masks_all_of_four_fifths_as_the_released_one_of_mistral(folder):
    options = composed("experiment=mntp").objective
    assert (options.probability, options.masked) == (0.8, 1)
    loss = attached(MaskedNextTokenPrediction(options.probability, options.masked), load(folder, **OPTIONS))
    ids = torch.full((200, 100), 50)
    masked, labels = loss.mask(ids)
    chosen = labels != NOT_CHOSEN
    assert (masked[chosen] == loss._mask_token).all() and 0.78 < chosen.double().mean() < 0.82


def test_a_decoder_without_its_head_is_one_line(make_model):
    with pytest.raises(UserError, match="has no language-model head .*lm_head.*head=new initializes"):
        attached(MaskedNextTokenPrediction(), load(make_model("llama", tie_word_embeddings=False), **OPTIONS))
