"""Load backbones of several architectures: layers, dropout, inputs and errors."""

import json
import shutil

import pytest
import torch

from simcse_pl.models.backbone import load_backbone
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.utils.errors import UserError
from tests.support.tiny_models import ARCHITECTURES

every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)
INPUTS = {"input_ids": torch.tensor([[2, 7, 9, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}


def dropout_rates(model):
    return {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}


@every_architecture
def test_the_first_layers_are_kept_unchanged(architecture, make_model):
    folder = make_model(architecture)
    whole, cut = load_backbone(str(folder)), load_backbone(str(folder), num_layers=2)
    assert cut.config.num_hidden_layers == 2
    kept = cut.state_dict()
    assert 0 < len(kept) < len(whole.state_dict())
    assert all(torch.equal(tensor, whole.state_dict()[name]) for name, tensor in kept.items())
    states = whole.eval()(**INPUTS, output_hidden_states=True).hidden_states
    if architecture != "modernbert":  # which normalizes after its last layer
        torch.testing.assert_close(cut.eval()(**INPUTS).last_hidden_state, states[2])


@every_architecture
def test_dropout_is_set_under_the_architectures_names(architecture, make_model):
    folder = str(make_model(architecture))
    assert dropout_rates(load_backbone(folder, dropout=0.3)) <= {0.3}
    model = load_backbone(folder, dropout=0.3, attention_dropout=0.05)
    names = ("attention_probs_dropout_prob", "attention_dropout")
    assert [getattr(model.config, name) for name in names if hasattr(model.config, name)] == [0.05]
    vectors = [model.train()(**INPUTS).last_hidden_state for _ in range(2)]
    assert not torch.equal(*vectors)
    without = load_backbone(folder, dropout=0.0).train()
    assert torch.equal(*(without(**INPUTS).last_hidden_state for _ in range(2)))


def test_more_layers_than_the_checkpoint_has_are_an_error(make_model):
    with pytest.raises(UserError, match="num_layers=4: the model has 3 layers"):  # they would be drawn at random
        load_backbone(str(make_model("bert")), num_layers=4)


def test_a_config_of_a_million_layers_is_an_error(make_model, tmp_path):
    config = json.loads((make_model("bert") / "config.json").read_text()) | {"num_hidden_layers": 10**6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=f"^{tmp_path}/config.json: num_hidden_layers=1000000, so many take too long"):
        load_backbone(str(tmp_path))


def test_a_dropout_that_the_architecture_lacks_is_an_error(tmp_path):
    from transformers import XLNetConfig, XLNetModel

    XLNetModel(XLNetConfig(vocab_size=50, d_model=32, n_layer=1, n_head=2, d_inner=64)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="^attention_dropout=0.1: .* has no such dropout"):
        load_backbone(str(tmp_path), attention_dropout=0.1)
    assert load_backbone(str(tmp_path), dropout=0.2).config.dropout == 0.2


def test_a_tokenizer_without_pad_token_uses_another(make_model, tmp_path):
    folder = shutil.copytree(make_model("bert"), tmp_path / "model")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("pad_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_tokenizer(str(folder)).pad_token == "[SEP]"
