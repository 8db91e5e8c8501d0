"""Vectors of Token Prepending are those of fuyuchenIfyw/token_prepending at cc41b58, with transformers 4.46.3.

Its senllm/modeling_llama.py was run in float64 on the ids and the weights of the record. The ids have the number of its
placeholder, 32000; here, it is the last one.
"""

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.fidelity.compare import FOLDER
from simcse_pl.methods.training_free import TokenPrepending


@pytest.mark.parametrize(("first", "last", "pooling"), [(1, 2, "last_token"), (2, 4, "last_token_3")])
def test_vectors_are_those_of_the_official_code(first, last, pooling, make_model):
    record = load_file(FOLDER / "token_prepending.safetensors")
    folder = make_model("llama", num_hidden_layers=5, hidden_size=16, intermediate_size=24)
    encoder = TokenPrepending.from_pretrained(folder, pooling, first_layer=first, last_layer=last)
    weights = {name: record[name].double() for name in encoder.backbone.state_dict()}
    encoder.backbone.double().load_state_dict(weights)
    inputs = {"input_ids": record["input_ids"], "attention_mask": torch.ones_like(record["input_ids"])}
    with torch.no_grad():
        torch.testing.assert_close(encoder(inputs), record[f"{first}_{last}_{pooling}"], atol=1e-10, rtol=0)
