"""CoT-BERT: a sentence in another template is another text."""

import pytest

from simcse_pl.losses.embedded_batch import EmbeddedBatch
from simcse_pl.models.roles import default_roles
from simcse_pl.training.curves import share_of_duplicates
from tests.conftest import SENTENCES
from tests.losses.cases import load


@pytest.mark.parametrize(("templates", "duplicates"), [(3, 0.0), (2, 1.0)])
def test_a_sentence_in_another_template_is_no_duplicate(templates, duplicates, make_model):
    texts = ['"{sentence}" means [MASK] .', 'the "{sentence}" is [MASK] .', 'no "{sentence}" means [MASK] .']
    encoder = load(make_model("bert"), pooling="mask", template=texts[:templates])
    tokens = encoder.templates.tokens_of([sentence for sentence in SENTENCES for _ in range(3)], 16)
    inputs = {name: x.view(8, 3, -1) for name, x in encoder.templates.batch(tokens, 3).items()}
    assert share_of_duplicates(EmbeddedBatch(encoder, inputs, default_roles(3))) == duplicates
