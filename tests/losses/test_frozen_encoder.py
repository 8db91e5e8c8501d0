"""A frozen encoder moves with its module, and is neither trained nor saved."""

import pytest
import torch
from torch import nn

from simcse_pl.losses.distillation import EmbeddingDistillation
from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError
from tests.losses.cases import attached, batch_of, load


def test_it_embeds_its_first_dimensions_like_encode_and_is_neither_trained_nor_saved(teacher, make_model, tmp_path):
    SentenceEncoder.from_pretrained(teacher, truncate_dim=5).save_pretrained(tmp_path / "short")
    encoder = load(make_model("bert"), normalize=True)
    loss = attached(EmbeddingDistillation(tmp_path / "short"), encoder)
    batch = batch_of(encoder, chunk_size=3)
    value, vectors = loss(encoder, batch), loss.teacher.embed(batch)
    plain = loss.teacher.network({name: x[:, 0] for name, x in batch.inputs.items()})[:, :5]
    torch.testing.assert_close(vectors[:, 0], plain)
    assert not vectors.requires_grad and loss.double().teacher.embed(batch).dtype == torch.float64
    assert loss.state_dict().keys() == dict(loss.named_parameters()).keys() == {"projection.weight", "projection.bias"}
    student = nn.functional.normalize(loss.float().projection(batch.embeddings), dim=-1)
    expected = (student - nn.functional.normalize(vectors, dim=-1)).square().mean()
    torch.testing.assert_close(value, expected)


def test_an_encoder_with_a_post_processing_or_another_vocabulary_is_an_error(make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    encoder.save_pretrained(tmp_path / "plain")
    with pytest.raises(UserError, match="^teacher: its vocabulary"):
        EmbeddingDistillation(tmp_path / "plain").attach(load(make_model("roberta")))
    encoder.postprocess = Whitening().fit(torch.randn(400, encoder.dim))
    encoder.save_pretrained(tmp_path / "white")
    with pytest.raises(UserError, match="white: this encoder has a post-processing"):
        FrozenEncoder(tmp_path / "white")
