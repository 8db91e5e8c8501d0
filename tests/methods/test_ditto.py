"""The pooling of Ditto against transformers' attention."""

import torch
from transformers import AutoModel

from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import SENTENCES


def test_ditto_weights_tokens_by_the_attention_of_a_head_to_the_token_itself(make_model):
    folder = make_model("bert", initializer_range=0.5)
    encoder = SentenceEncoder.from_pretrained(folder, "ditto_2_3")
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    for text, vector in zip(SENTENCES, encoder.encode(SENTENCES), strict=True):
        with torch.no_grad():
            inputs = encoder.tokenizer(text, return_tensors="pt")
            outputs = model(**inputs, output_hidden_states=True, output_attentions=True)
        (attention,), states = outputs.attentions[1][:, 2], [state[0] for state in outputs.hidden_states]
        expected = sum(attention[i, i] * (states[0][i] + states[-1][i]) / 2 for i in range(len(attention)))
        torch.testing.assert_close(vector, expected, atol=1e-4, rtol=1e-4)
