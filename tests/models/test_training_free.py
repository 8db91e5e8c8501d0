"""MetaEOL against transformers' own model of single prompts, and Token Prepending against a loop over its layers."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModel, AutoTokenizer

from simcse_pl.models.load import fingerprint
from simcse_pl.models.training_free import MeanOfTemplates, TokenPrepending
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


@pytest.mark.parametrize(("pooling", "layer"), [("last_token", None), ("last_token_3", 3)])
def test_layers_read_the_state_of_the_last_token_before_the_sentence(pooling, layer, make_model):
    folder = make_model("llama", num_hidden_layers=5)
    options = {"template_as_text": "always", "first_layer": 1, "last_layer": 2}
    encoder = TokenPrepending.from_pretrained(folder, pooling, template='The text "{sentence}" means:"', **options)
    vectors, model, expected = encoder.encode(SENTENCES, batch_size=4), encoder.backbone.double(), []
    for sentence in SENTENCES:
        ids = encoder.tokenizer(f'The text <PST> "{sentence}" means:"')["input_ids"]
        place = ids.index(len(AutoTokenizer.from_pretrained(folder)))  # the number of the new token
        states = model.embed_tokens(torch.tensor([ids]))
        positions = model.rotary_emb(states, torch.arange(len(ids))[None])
        for number, block in enumerate(model.layers[:layer]):
            if number in (1, 2):
                states[0, place] = states[0, -1].clone()
            states = block(states, position_embeddings=positions).detach()
        expected.append((states if layer else model.norm(states))[0, -1])
    torch.testing.assert_close(vectors.double(), torch.stack(expected), atol=1e-5, rtol=0)
