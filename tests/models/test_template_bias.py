"""The bias of a template against passes of the template alone, and in every path that encodes with it."""

from functools import partial

import pytest
import torch
from transformers import AutoModel

from simcse_pl.data.collator import ViewCollator
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from tests.conftest import SENTENCES, adamw

FIRST = 'The hall : "{sentence}" means [MASK] .'
SECOND = 'This moon of "{sentence}" [MASK] or [MASK]!'
TEXTS = [*SENTENCES, "a [MASK] b", "", "snow", "Nobody answered."]  # some have the same length


@pytest.fixture
def model_of(make_model):
    """Make models with weights so large that each token matters to the others."""
    return partial(make_model, initializer_range=0.2)


@pytest.fixture
def load(model_of):
    def load(architecture="bert", **options):
        given = {"pooling": "mask", "template": [FIRST, SECOND], "template_bias": "always", "max_length": 40}
        return SentenceEncoder.from_pretrained(model_of(architecture), **given | options)

    return load


def last_state(model, ids, place, positions=None):
    """Return the last state of one token, of a pass of a single sequence without padding."""
    given = {} if positions is None else {"position_ids": torch.tensor([positions])}
    return model(torch.tensor([ids]), **given).last_hidden_state[0, place]


def without_bias(model, tokenizer, text, template, padded=False):
    """Return the state at the template's first mask token, minus that of the template alone."""
    before, after = template.replace("[MASK]", tokenizer.mask_token).split("{sentence}")
    before, after = (tokenizer.encode(part, add_special_tokens=False) for part in (before.rstrip(), after))
    before, after = [tokenizer.cls_token_id, *before], [*after, tokenizer.sep_token_id]
    own = tokenizer.encode(text, add_special_tokens=False)
    place = after.index(tokenizer.mask_token_id)
    whole = last_state(model, [*before, *own, *after], len(before) + len(own) + place)
    if padded:
        ids = [*before, *[tokenizer.pad_token_id] * len(own), *after]
        return whole - last_state(model, ids, len(before) + len(own) + place)
    start = 2 if model.config.model_type == "roberta" else 0  # position 1 is that of padding
    positions = [*range(len(before)), *range(len(before) + len(own), len(before) + len(own) + len(after))]
    return whole - last_state(model, before + after, len(before) + place, [start + n for n in positions])


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
def test_the_bias_is_the_template_alone_with_positions_shifted_by_the_length(architecture, load, model_of):
    encoder = load(architecture)
    model = AutoModel.from_pretrained(model_of(architecture)).eval()
    with torch.no_grad():
        expected = torch.stack([without_bias(model, encoder.tokenizer, text, FIRST) for text in TEXTS])
    torch.testing.assert_close(encoder.encode(TEXTS), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(encoder.encode(TEXTS, batch_size=2), expected, atol=1e-5, rtol=0)
    plain = load(architecture, template_bias="none").encode(TEXTS)
    assert (plain - expected).abs().amax(dim=1).min() > 0.1


def rows_of(encoder, views=2):
    return ViewCollator(encoder.tokenizer, 24, encoder.templates)([(text,) * views for text in TEXTS])


@pytest.mark.parametrize("kind", ["train_only", "padded_train_only"])
@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_views_and_gradients_are_those_of_single_passes(architecture, kind, load, model_of):
    """In training each view has the bias of its own template. Dropout is off here."""
    encoder = load(architecture, template_bias=kind, dropout=0.0).double().train()
    pooled = encoder.pool_views(rows_of(encoder))
    model = AutoModel.from_pretrained(model_of(architecture)).double().eval()
    found = partial(without_bias, model, encoder.tokenizer, padded=kind.startswith("padded"))
    expected = torch.stack([torch.stack([found(text, FIRST), found(text, SECOND)]) for text in TEXTS])
    torch.testing.assert_close(pooled, expected, atol=1e-10, rtol=0)
    weights = torch.randn_like(pooled)
    for vectors in (pooled, expected):
        (vectors * weights).sum().backward()
    own = dict(encoder.backbone.named_parameters())
    compared = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert any("position_embeddings" in name for name in compared)
    for name, gradient in compared.items():
        torch.testing.assert_close(own[name].grad, gradient, atol=1e-9, rtol=1e-7)
    encoder.eval()
    torch.testing.assert_close(encoder.encode(TEXTS), load(architecture, template_bias="none").encode(TEXTS))


@pytest.mark.parametrize("options", [{"chunk_size": 5}, {"shared_dropout_mask": True}])
def test_other_paths_of_training_have_the_same_gradients(options, load):
    def gradients(**given):
        encoder = load(template_bias="train_only", dropout=0.0, head="none").double()
        module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), **given)
        module.prepare()
        loss = module.loss(module.batch_of(rows_of(encoder)))
        loss.backward()
        return loss, [p.grad for p in module.parameters() if p.requires_grad]

    loss, expected = gradients()
    again, found = gradients(**options)
    torch.testing.assert_close(again, loss, atol=1e-12, rtol=0)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-7)
