"""CSE-SFP: both vectors of a pair come from one pass of a decoder; tests/fidelity has its values with BERT."""

import pytest
import torch

from simcse_pl.losses.contrastive import contrastive_loss
from simcse_pl.methods.cse_sfp import SinglePassLoss
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.losses.cases import attached, batch_of, load
from tests.support.helpers import composed
from tests.support.runs import fit

FIRST, ENDING = 'This sentence : "{sentence}" means something', ", it can be summarized as"
OPTIONS = {"pooling": "last_token", "head": "none", "dropout": None, "attention_dropout": None}  # Llama has no dropout


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def folder(request, make_model):
    return make_model(request.param, max_position_embeddings=256)


def test_the_pair_is_that_of_two_passes_of_a_decoder(folder):
    encoder, before = (load(folder, template=text, **OPTIONS).double().eval() for text in (FIRST + ENDING, FIRST))
    loss = attached(SinglePassLoss(temperature=0.3), encoder)
    passes = []
    encoder.backbone.register_forward_hook(lambda *_: passes.append(1))
    inputs = encoder.templates.batch([encoder.tokenizer(text)["input_ids"] for text in SENTENCES[:4]], views=1)
    batch = batch_of(encoder)
    batch.inputs = {name: x[:, None].expand(-1, 2, -1) for name, x in inputs.items()}
    value = loss(batch)
    assert len(passes) == 1
    anchors, positives = (one.encode(SENTENCES[:4]) for one in (encoder, before))
    torch.testing.assert_close(value.float(), contrastive_loss(anchors, positives, temperature=0.3))


def test_a_template_without_the_ending_is_an_error(folder):
    with pytest.raises(UserError, match=r"^model.template='.*something' does not end in ', it can .* objective.ending"):
        SinglePassLoss().attach(load(folder, template=FIRST, **OPTIONS))


def test_rows_of_several_sentences_are_an_error(folder, tmp_path):
    (tmp_path / "pairs.tsv").write_text("A man sleeps.\tA man.\nIt rains.\tRain.\n")
    options = ["method=cse_sfp", "data=text", f"data.train={tmp_path}/pairs.tsv", "model=checkpoint", "trainer=cpu"]
    with pytest.raises(UserError, match="makes pairs of single sentences"):
        fit(composed(*options, f"model.name={folder}", "trainer.max_steps=1", "data.validation=sample"))
