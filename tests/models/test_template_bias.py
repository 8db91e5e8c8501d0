"""The bias of a template against a pass over the template alone, and in every path that encodes with it."""

import copy
import json
from functools import partial

import pytest
import torch
from transformers import AutoModel

from simcse_pl.cli.info import describe
from simcse_pl.data.collators import ViewCollator
from simcse_pl.data.evaluation_sentences import EvaluationSentences
from simcse_pl.export.fingerprint import fingerprint
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.losses.embedded_batch import embed_views, pool_views
from simcse_pl.losses.objectives import ContrastiveObjective
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.encoder_files import SETTINGS_FILE
from simcse_pl.models.templates import SENTENCE_MASK
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.shared_dropout import embed_with_shared_dropout_mask
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw
from tests.models.test_lightning_checkpoint import save

FIRST = 'The hall : "{sentence}" means [MASK] .'
SECOND = 'This moon of "{sentence}" [MASK] or [MASK]!'
TEXTS = [*SENTENCES, "a [MASK] b", "", "snow", "Nobody answered."]  # some of equal length


@pytest.fixture
def load(make_model):
    def load(architecture="bert", **options):
        given = {"pooling": "mask", "template": [FIRST, SECOND], "template_bias": "always", "max_length": 40}
        return SentenceEncoder.from_pretrained(make_model(architecture), **given | options)

    return load


def parts_of(tokenizer, template):
    """Return the token ids of a template before and after the sentence, by the tokenizer alone."""
    before, after = template.replace("[MASK]", tokenizer.mask_token).split("{sentence}")
    return [tokenizer.encode(part, add_special_tokens=False) for part in (before.rstrip(), after)]


def vector_at_mask(model, tokenizer, ids, positions=None):
    """Return the last state of the first mask token of a template, in a pass of one sequence."""
    given = {} if positions is None else {"position_ids": torch.tensor([positions])}
    states = model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), **given).last_hidden_state
    return states[0, ids.index(tokenizer.mask_token_id)]


def debiased(encoder, model, text, template, padded=False):
    """Return the vector of a sentence minus that of its template, each in a pass of its own."""
    tokenizer = encoder.tokenizer
    before, after = parts_of(tokenizer, template)
    own = tokenizer.encode(text, add_special_tokens=False)
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    start = 2 if model.config.model_type == "roberta" else 0  # RoBERTa's position 0 is unused, and 1 is padding's
    positions = list(range(start, start + len(before) + 1))
    positions += [positions[-1] + len(own) + n for n in range(1, len(after) + 2)]
    if padded:
        bias = vector_at_mask(model, tokenizer, [first, *before, *[tokenizer.pad_token_id] * len(own), *after, last])
    else:
        bias = vector_at_mask(model, tokenizer, [first, *before, *after, last], positions)
    ids = [first, *before, *own, *after, last]
    states = model(torch.tensor([ids])).last_hidden_state[0]
    place = 1 + len(before) + len(own) + after.index(tokenizer.mask_token_id)
    return states[place] - bias


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "xlm-roberta"])
def test_vectors_are_those_without_the_vector_of_a_template_with_shifted_positions(architecture, load, make_model):
    encoder = load(architecture)
    if architecture == "xlm-roberta":
        encoder.backbone.config.model_type = "roberta"
    model = AutoModel.from_pretrained(make_model(architecture)).eval()
    model.config.model_type = encoder.backbone.config.model_type
    with torch.no_grad():
        expected = torch.stack([debiased(encoder, model, text, FIRST) for text in TEXTS])
    torch.testing.assert_close(encoder.encode(TEXTS), expected, atol=1e-5, rtol=0)
    assert (encoder.encode(TEXTS) - load(architecture, template_bias="none").encode(TEXTS)).abs().amax(dim=1).min() > 0.1
