"""Token Prepending against a plain loop over the layers of a decoder."""

import pytest
import torch
from transformers import AutoTokenizer

from simcse_pl.models.token_prepending import TokenPrepending
from tests.conftest import SENTENCES

PROMPT = 'This sentence : "{sentence}" means in one word:"'


@pytest.mark.parametrize(("pooling", "layer"), [("last_token", None), ("last_token_3", 3)])
def test_layers_read_the_state_of_the_last_token_before_the_sentence(pooling, layer, make_model):
    folder = make_model("llama", num_hidden_layers=5)
    options = {"template": PROMPT, "template_as_text": "always", "first_layer": 1, "last_layer": 2}
    encoder = TokenPrepending.from_pretrained(folder, pooling, **options)
    vectors, model, expected = encoder.encode(SENTENCES, batch_size=4), encoder.backbone.double(), []
    for sentence in SENTENCES:
        ids = encoder.tokenizer(f'This sentence : <PST> "{sentence}" means in one word:"')["input_ids"]
        place = ids.index(len(AutoTokenizer.from_pretrained(folder)))  # the number of the new token
        states = model.embed_tokens(torch.tensor([ids]))
        positions = model.rotary_emb(states, torch.arange(len(ids))[None])
        for number, block in enumerate(model.layers[:layer]):
            if number in (1, 2):
                states[0, place] = states[0, -1].clone()
            states = block(states, position_embeddings=positions).detach()
        expected.append((states if layer else model.norm(states))[0, -1])
    torch.testing.assert_close(vectors.double(), torch.stack(expected), atol=1e-5, rtol=0)
