"""The regularizers on the word embeddings of architectures; test_all_losses.py has the equations."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from simcse_pl.losses.regularizers import (
    CosineRegularization,
    cosine_regularization,
    decay_curve,
    spectrum_control,
    word_embeddings,
)
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError


@pytest.mark.parametrize("values", [[2.0] * 6, [3.0, 1, 1, 1, 1, 1], [1.0, 1, 1, 0, 0, 0], [1.0, 0, 0, 0, 0, 0]])
def test_repeated_and_zero_singular_values_have_bounded_gradients(values):
    rows = (torch.linalg.qr(torch.randn(20, 6)).Q * torch.tensor(values)).requires_grad_()
    spectrum_control(rows, decay_curve("polynomial", 6, 0.5)).backward()
    assert torch.isfinite(rows.grad).all() and 0 < rows.grad.norm() < 20


@pytest.mark.parametrize(("architecture", "padding"), [("bert", 0), ("roberta", 1), ("modernbert", 0)])
def test_all_rows_but_the_paddings_are_regularized(architecture, padding, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean")
    weight = encoder.backbone.get_input_embeddings().weight
    rows = [row for number, row in enumerate(weight.detach()) if number != padding]
    loss = CosineRegularization()(encoder, None)
    assert loss == cosine_regularization(torch.stack(rows))
    loss.backward()
    assert not weight.grad[padding].any() and weight.grad[padding + 1].any()
    assert len([name for name, parameter in encoder.named_parameters() if parameter.grad is not None]) == 1


def test_without_a_padding_token_all_rows_count_and_without_a_matrix_is_an_error():
    embedding = nn.Embedding(5, 3)
    encoder = SimpleNamespace(backbone=SimpleNamespace(get_input_embeddings=lambda: embedding))
    assert word_embeddings(encoder) is embedding.weight

    class Pixels(nn.Module):
        def get_input_embeddings(self):
            return nn.Conv2d(1, 1, 1)

    with pytest.raises(UserError, match="^auxiliary: Pixels has no matrix of word embeddings"):
        word_embeddings(SimpleNamespace(backbone=Pixels()))
