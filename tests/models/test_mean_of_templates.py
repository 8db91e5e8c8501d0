"""MetaEOL against transformers' own model of single prompts."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModel

from simcse_pl.models.load import fingerprint
from simcse_pl.models.mean_of_templates import MeanOfTemplates
from simcse_pl.postprocessing.linear import Whitening
from tests.conftest import SENTENCES

TEMPLATES = ['The topic of "{sentence}" in one word:"', 'What "{sentence}" means in one word:"', "{sentence}"]


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_vectors_are_the_means_over_all_templates(architecture, make_model):
    folder = make_model(architecture)
    encoder = MeanOfTemplates.from_pretrained(folder, "last_token", template=TEMPLATES, template_as_text="always")
    model, expected = AutoModel.from_pretrained(folder).eval(), []
    for sentence in SENTENCES:
        prompts = [template.replace("{sentence}", sentence) for template in TEMPLATES]
        with torch.no_grad():
            states = [model(**encoder.tokenizer(text, return_tensors="pt")).last_hidden_state for text in prompts]
        expected.append(sum(state[0, -1] for state in states) / 3)
    expected = torch.stack(expected)
    torch.testing.assert_close(encoder.encode(SENTENCES, 4), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(encoder.encode(SENTENCES, normalize=True), F.normalize(expected), atol=1e-4, rtol=0)
    encoder.postprocess = Whitening(dim=2).fit(expected)
    torch.testing.assert_close(encoder.encode(SENTENCES), encoder.postprocess.transform(expected), atol=1e-3, rtol=1e-3)
    assert encoder.templates.texts == TEMPLATES and fingerprint(encoder) is None
