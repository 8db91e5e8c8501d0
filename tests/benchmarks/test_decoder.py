"""A Llama as a Phi-3."""

import torch
from transformers import LlamaConfig, LlamaModel

from benchmarks.decoder import as_phi3


def test_a_phi3_computes_what_the_llama_computes_and_drops_residuals_in_training():
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2}
    llama = LlamaModel(LlamaConfig(**sizes, vocab_size=50, num_hidden_layers=2, pad_token_id=0)).eval()
    tokens = torch.randint(50, (3, 7))
    phi3 = as_phi3(llama)
    expected = llama(tokens).last_hidden_state
    torch.testing.assert_close(phi3(tokens).last_hidden_state, expected, rtol=0, atol=0)
    for layer in phi3.layers:
        layer.resid_mlp_dropout.p = 0.5
    assert not torch.allclose(phi3.train()(tokens).last_hidden_state, expected)
