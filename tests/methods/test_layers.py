"""Layers that run on given states, for every architecture."""

import peft
import pytest
import torch

from simcse_pl.methods.layers import changed_layer_input, first_layers, new_layers, run_layers
from simcse_pl.models.backbone import has_adapter, load_backbone
from simcse_pl.models.encoder import SentenceEncoder
from tests.support.tiny_models import ARCHITECTURES

IDS = torch.tensor([[5, 6, 7, 8], [6, 9, 5, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_the_changed_states_enter_the_first_layer(architecture, make_model):
    backbone = load_backbone(str(make_model(architecture))).eval()
    change = {"input_ids": IDS, "attention_mask": MASK, "output_hidden_states": True}
    before = backbone(**change).hidden_states
    with changed_layer_input(backbone, lambda states: 2 * states):
        changed = backbone(**change).hidden_states
    torch.testing.assert_close(changed[0], 2 * before[0])
    assert not torch.allclose(changed[1], before[1])
    again = backbone(**change).hidden_states
    assert all(torch.equal(one, other) for one, other in zip(before, again, strict=True)), "only within the context"


def test_the_first_layers_have_a_trained_adapter(make_model):
    adapter = peft.LoraConfig(target_modules=["query"])
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "cls", adapter=adapter)
    for name, weight in encoder.backbone.named_parameters():
        if "lora" in name:
            torch.nn.init.normal_(weight)
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    states = encoder.backbone.eval()(**inputs, output_hidden_states=True).hidden_states[2]
    torch.testing.assert_close(first_layers(encoder.backbone, 2).eval()(**inputs)[0], states)
    assert has_adapter(encoder.backbone)


@pytest.mark.parametrize("architecture", list(ARCHITECTURES))
def test_new_layers_with_the_weights_of_a_backbone_continue_its_states(architecture, make_model):
    backbone = load_backbone(str(make_model(architecture))).eval()
    output = backbone(input_ids=IDS, attention_mask=MASK, output_hidden_states=True)
    layers = new_layers(backbone, 3).eval()
    assert layers.get_input_embeddings().num_embeddings == 2
    own = backbone.state_dict()
    layers.load_state_dict({name: x if "embeddings" in name else own[name] for name, x in layers.state_dict().items()})
    found = run_layers(layers, output.hidden_states[0], MASK)
    torch.testing.assert_close(found[MASK == 1], output.last_hidden_state[MASK == 1])
