"""The queue's contents and how its encoder moves; tests/properties/test_losses.py has the loss with it."""

import pytest
import torch

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.momentum_queue import MomentumQueue
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.losses.cases import attached


@pytest.fixture
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp_train_only").train()


def batch_of(encoder, sentences):
    return ViewCollator(encoder.tokenizer, 32)([(sentence,) for sentence in sentences])


def anchors(encoder, sentences):
    """Embed with the head of training and without dropout."""
    inputs = encoder.tokenizer(sentences, padding=True, return_tensors="pt")
    encoder.backbone.eval()
    vectors = encoder(dict(inputs)).detach()
    encoder.backbone.train()
    return vectors


def test_the_queue_keeps_the_newest_anchors_without_dropout(encoder):
    queue = attached(MomentumQueue(size=5, momentum=0.0), encoder).train()
    assert queue.negatives().shape == (0, encoder.dim)
    seen = []
    for sentences in (SENTENCES[:2], SENTENCES[2:5], SENTENCES[5:7]):
        queue.update(encoder, batch_of(encoder, sentences))
        seen = (seen + sentences)[-5:]
        torch.testing.assert_close(queue.negatives(), anchors(encoder, seen), atol=1e-5, rtol=1e-4)
    queue.update(encoder, batch_of(encoder, SENTENCES), chunk_size=3)
    torch.testing.assert_close(queue.negatives(), anchors(encoder, SENTENCES[-5:]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "option", [{"template_bias": "train_only"}, {"template_bias": "padded_train_only"}, {"head": "transform"}]
)
def test_vectors_of_training_that_the_copy_would_not_compute_are_an_error(option, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mask", template="{sentence} [MASK]", **option)
    ((name, value),) = option.items()
    with pytest.raises(UserError, match=f"^it does not support model.{name}={value}: change it, or set queue=n"):
        attached(MomentumQueue(size=4), encoder)
