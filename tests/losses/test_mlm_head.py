"""The head of masked language models: each architecture's own, with weights tied to the encoder's."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, Wav2Vec2Config, Wav2Vec2Model

from simcse_pl.losses.mlm_head import MLMHead
from simcse_pl.models.backbone import load_backbone
from simcse_pl.utils.errors import UserError
from tests.tiny_models import ARCHITECTURES

ALL = list(ARCHITECTURES)
IDS = torch.tensor([[2, 7, 9, 11, 3], [2, 8, 30, 3, 3]])


def shared(head, backbone):
    return {id(w) for w in head.parameters()} & {id(w) for w in backbone.parameters()}


@pytest.mark.parametrize("architecture", ALL)
def test_scores_of_untied_weights_are_those_of_the_whole_model(architecture, make_masked_language_model):
    """tests/losses/test_mlm.py has the loss of tied ones."""
    folder = make_masked_language_model(architecture, tie_word_embeddings=False)
    backbone = load_backbone(str(folder)).eval()
    head = MLMHead(backbone).eval()
    whole = AutoModelForMaskedLM.from_pretrained(folder).eval()
    scores = head(backbone(IDS).last_hidden_state.flatten(0, 1))
    torch.testing.assert_close(scores, whole(IDS).logits.flatten(0, 1), atol=1e-5, rtol=0)
    tied = shared(whole.get_output_embeddings(), whole.base_model)
    assert bool(shared(head, backbone)) == bool(tied)


@pytest.mark.parametrize("architecture", ALL)
@pytest.mark.parametrize("pretrained", [True, False])
def test_only_the_decoder_is_shared_with_the_encoder_and_all_weights_get_gradients(
    pretrained, architecture, make_masked_language_model
):
    backbone = load_backbone(str(make_masked_language_model(architecture)))
    head = MLMHead(backbone, pretrained)
    assert shared(head, backbone) == {id(backbone.get_input_embeddings().weight)}
    assert head.model.get_output_embeddings().weight is backbone.get_input_embeddings().weight
    both = torch.nn.ModuleList([backbone, head])
    head(backbone(IDS).last_hidden_state.flatten(0, 1)).logsumexp(dim=-1).sum().backward()
    assert [name for name, weight in both.named_parameters() if weight.grad is None] == []  # DDP would wait for them


def test_a_pretrained_head_leaves_the_random_state_and_a_new_one_is_drawn_from_it(make_masked_language_model):
    backbone = load_backbone(str(make_masked_language_model("bert")))
    before = torch.get_rng_state()
    loaded = MLMHead(backbone)
    assert torch.equal(torch.get_rng_state(), before)
    dense = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        dense.append(MLMHead(backbone, pretrained=False).model.cls.predictions.transform.dense.weight)
    assert torch.equal(dense[0], dense[1]) and not torch.equal(dense[0], dense[2])
    assert not torch.equal(dense[0], loaded.model.cls.predictions.transform.dense.weight)


def test_a_checkpoint_with_an_incomplete_head_is_an_error(make_masked_language_model, tmp_path):
    shutil.copytree(make_masked_language_model("bert"), tmp_path / "model")
    backbone = load_backbone(str(tmp_path / "model"))
    weights = load_file(tmp_path / "model" / "model.safetensors")
    del weights["cls.predictions.transform.LayerNorm.bias"]
    save_file(weights, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="^.*; its option head=new initializes a new one$"):
        MLMHead(backbone)


def test_an_architecture_without_a_masked_language_model_is_an_error():
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    backbone = Wav2Vec2Model(Wav2Vec2Config(**small, conv_dim=[16], conv_stride=[5], conv_kernel=[10]))
    with pytest.raises(UserError, match="^transformers has no masked language model for wav2vec2$"):
        MLMHead(backbone)


def test_a_head_is_in_training_mode_and_loading_runs_no_code_of_the_checkpoint(make_masked_language_model, tmp_path):
    folder = shutil.copytree(make_masked_language_model("bert"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForMaskedLM": "code.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    head = MLMHead(load_backbone(str(folder)))
    assert {module.training for module in head.modules()} == {True}
    assert not (tmp_path / "ran").exists()
