"""A frozen encoder moves with its module, and is neither trained nor saved."""

import pytest
import torch
from simcse_pl.losses.debiased import DebiasedObjective
from torch import nn

from simcse_pl.data.training_set import ViewCollator
from simcse_pl.losses.distillation import EmbeddingDistillation
from simcse_pl.losses.frozen_encoder import FrozenEncoder
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES


def test_it_embeds_like_encode_and_is_neither_trained_nor_saved(make_model):
    teacher = FrozenEncoder(make_model("bert"), pooling="mean")
    module = nn.ModuleDict({"teacher": teacher}).double().train()
    batch = ViewCollator(teacher.network.tokenizer, 32)([(sentence,) for sentence in SENTENCES])
    teacher.chunk_size = 3
    vectors = module["teacher"].embed(batch)
    assert vectors.dtype == torch.float64 and not vectors.requires_grad
    expected = teacher.network.float().encode(SENTENCES)
    torch.testing.assert_close(vectors.float(), torch.stack([expected, expected], dim=1), atol=1e-5, rtol=0)
    assert not list(module.parameters()) and not module.state_dict()


def test_an_encoder_with_a_post_processing_is_an_error(make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean")
    encoder.postprocess = Whitening().fit(torch.randn(400, encoder.dim))
    encoder.save_pretrained(tmp_path / "saved")
    with pytest.raises(UserError, match="saved: this encoder has a post-processing: choose the encoder that"):
        FrozenEncoder(tmp_path / "saved")


@pytest.mark.parametrize(("loss", "option"), [(DebiasedObjective, "guide"), (EmbeddingDistillation, "teacher")])
def test_it_must_have_the_trained_encoders_vocabulary(loss, option, make_model, tmp_path):
    SentenceEncoder.from_pretrained(make_model("roberta"), pooling="cls").save_pretrained(tmp_path)
    objective = loss(tmp_path)
    assert not list(objective.parameters()) and not objective.state_dict()
    with pytest.raises(UserError, match=f"^objective.{option}: its vocabulary must be that of the trained encoder$"):
        objective.attach(SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls"))
