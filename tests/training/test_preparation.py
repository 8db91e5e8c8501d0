"""Frozen parameters, and runs of unsupervised SimCSE whose two views would be equal."""

import contextlib
import re

import peft
import pytest
import torch

from simcse_pl.data.collator import ViewCollator
from simcse_pl.data.training_set import TrainingSet
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.inner_layer import InnerLayer
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import SimCSEModule
from simcse_pl.training.preparation import check_views_differ
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw

EQUAL = "^model.dropout: the two views of a sentence of .* have equal vectors without dropout"


def load(folder, dropout, lora_dropout=None):
    adapter = None
    if lora_dropout is not None:
        adapter = peft.LoraConfig(r=2, target_modules=["query", "value"], lora_dropout=lora_dropout)
    return SentenceEncoder.from_pretrained(
        folder, "mean", dropout=dropout, attention_dropout=dropout, adapter=adapter, num_layers=2
    )


@pytest.mark.parametrize(
    ("dropout", "lora_dropout", "equal"),
    [(0.1, None, False), (0.0, None, True), (0.0, 0.1, False), (0.0, 0.0, True)],
)
def test_dropout_of_the_model_or_of_an_adapter_makes_views_differ(make_model, sentences, dropout, lora_dropout, equal):
    """A new adapter adds 0 to each layer, so its dropout has no effect before the first step."""
    encoder = load(make_model("bert"), dropout, lora_dropout)
    rows = TrainingSet(str(sentences))
    rows.read(encoder.tokenizer, 16)
    with pytest.raises(UserError, match=EQUAL) if equal else contextlib.nullcontext():
        check_views_differ(encoder.train(), [rows])


def test_an_encoder_without_dropout_may_have_different_views(make_model, pairs):
    encoder = load(make_model("bert"), 0.0)
    rows = TrainingSet(str(pairs), header=False, columns=[0, 1])
    rows.read(encoder.tokenizer, 16)
    check_views_differ(encoder.train(), [rows])


@pytest.mark.parametrize("kind", ["adapter", "float64"])
def test_an_inner_layer_is_trained_with_an_adapter_and_in_float64(make_model, kind):
    encoder = load(make_model("bert"), 0.0, 0.1 if kind == "adapter" else None)
    if kind == "float64":
        encoder.double()
    trained = {name for name, p in encoder.named_parameters() if p.requires_grad}
    SimCSEModule(encoder, ContrastiveLoss(), adamw(), auxiliary={"inner": InnerLayer(ContrastiveLoss())})
    assert {name for name, p in encoder.named_parameters() if p.requires_grad} == trained
    with torch.no_grad():
        for name, weight in encoder.named_parameters():  # an adapter that has been trained adds something
            weight.add_(0.1 * torch.randn_like(weight) * ("lora" in name))
    SimCSEModule(encoder, ContrastiveLoss(), adamw(), auxiliary={"inner": InnerLayer(ContrastiveLoss())})


@pytest.mark.parametrize(
    ("architecture", "pooling", "unused"),
    [
        ("bert", "layers_0", r"\.layer\."),
        ("bert", "layers_1", r"\.layer\.[12]\."),
        *(("bert", pooling, "nothing") for pooling in ("layers_3", "first_last", "cls")),
        ("modernbert", "layers_1_2", r"\.layers\.2\.|\.final_norm\."),
    ],
)
def test_every_trainable_parameter_gets_a_gradient(make_model, architecture, pooling, unused):
    """DDP waits forever for missing gradients. Two encoders are both trained."""
    first, second = (SentenceEncoder.from_pretrained(make_model(architecture), pooling=pooling) for _ in range(2))
    module = SimCSEModule(first, ContrastiveLoss(), adamw(), positive_encoder=second)
    module.prepare()
    views = ViewCollator(first.tokenizer, 16)([(sentence,) for sentence in SENTENCES])
    module.loss(module.batch_of(views)).backward()
    for name, weight in module.named_parameters():
        assert (weight.grad is not None) == weight.requires_grad == (not re.search(unused, name)), name
