"""The head of masked language models: each architecture's own, its weights shared with the encoder's."""

import io
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from simcse_pl.losses.mlm_head import MLMHead
from simcse_pl.models.backbone import load_backbone
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.errors import UserError
from tests.conftest import ARCHITECTURES

ALL = list(ARCHITECTURES)
IDS = torch.tensor([[2, 7, 9, 11, 3], [2, 8, 30, 3, 3]])


@pytest.fixture(scope="session")
def make_checkpoint(make_model, tmp_path_factory):
    """Make a folder as pretraining leaves it: a whole masked language model, no two of its weights alike."""
    made = {}

    def make(architecture, **settings):
        key = f"{architecture}-{sorted(settings.items())}"
        if key not in made:
            source, folder = make_model(architecture, **settings), tmp_path_factory.mktemp(f"{architecture}-mlm")
            with torch.random.fork_rng():
                torch.manual_seed(0)
                model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(source))
                with torch.no_grad():
                    for weight in model.parameters():
                        weight.add_(torch.randn_like(weight) * 0.1)
            model.save_pretrained(folder)
            AutoTokenizer.from_pretrained(source).save_pretrained(folder)
            made[key] = folder
        return made[key]

    return make


@pytest.mark.parametrize("architecture", ALL)
def test_scores_are_those_of_the_whole_model(architecture, make_checkpoint):
    folder = make_checkpoint(architecture)
    backbone = load_backbone(str(folder)).eval()
    hidden_states = backbone(IDS).last_hidden_state
    whole = AutoModelForMaskedLM.from_pretrained(folder).eval()
    scores = MLMHead.pretrained(backbone).eval()(hidden_states.flatten(0, 1))
    torch.testing.assert_close(scores, whole(IDS).logits.flatten(0, 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("architecture", ALL)
@pytest.mark.parametrize("kind", ["pretrained", "fresh"])
def test_the_decoder_is_the_encoders_word_embeddings_and_nothing_else_is_shared(kind, architecture, make_checkpoint):
    backbone = load_backbone(str(make_checkpoint(architecture)))
    head = getattr(MLMHead, kind)(backbone)
    shared = {id(w) for w in head.parameters()} & {id(w) for w in backbone.parameters()}
    assert shared == {id(backbone.get_input_embeddings().weight)}
    assert head.model.get_output_embeddings().weight is backbone.get_input_embeddings().weight


@pytest.mark.parametrize("architecture", ALL)
def test_every_weight_gets_a_gradient_so_that_no_rank_waits_for_one(architecture, make_checkpoint):
    backbone = load_backbone(str(make_checkpoint(architecture)))
    both = torch.nn.ModuleList([backbone, MLMHead.pretrained(backbone)])
    both[1](both[0](IDS).last_hidden_state.flatten(0, 1)).logsumexp(dim=-1).sum().backward()
    assert [name for name, weight in both.named_parameters() if weight.grad is None] == []


def test_a_checkpoint_that_ties_nothing_keeps_its_own_decoder(make_checkpoint):
    folder = make_checkpoint("roberta", tie_word_embeddings=False)
    backbone = load_backbone(str(folder)).eval()
    head = MLMHead.pretrained(backbone).eval()
    assert not {id(w) for w in head.parameters()} & {id(w) for w in backbone.parameters()}
    expected = AutoModelForMaskedLM.from_pretrained(folder).eval()(IDS).logits.flatten(0, 1)
    torch.testing.assert_close(head(backbone(IDS).last_hidden_state.flatten(0, 1)), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_a_backbone_cut_to_its_first_layers_keeps_the_head(architecture, make_checkpoint):
    folder = make_checkpoint(architecture)
    cut, whole = (load_backbone(str(folder), num_layers=n, dropout=0.3) for n in (2, None))
    ours, theirs = MLMHead.pretrained(cut).eval(), MLMHead.pretrained(whole).eval()
    hidden_states = torch.randn(4, 32)
    assert torch.equal(ours(hidden_states), theirs(hidden_states))
    assert cut.config.num_hidden_layers == 2


def test_no_position_no_scores(make_checkpoint):
    backbone = load_backbone(str(make_checkpoint("bert")))
    scores = MLMHead.pretrained(backbone)(torch.empty(0, 32))
    assert scores.shape == (0, backbone.config.vocab_size)


def test_loading_leaves_the_random_state_and_a_fresh_head_is_drawn_from_it(make_checkpoint):
    backbone = load_backbone(str(make_checkpoint("bert")))
    before = torch.get_rng_state()
    MLMHead.pretrained(backbone)
    assert torch.equal(torch.get_rng_state(), before)
    dense = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        dense.append(MLMHead.fresh(backbone).model.cls.predictions.transform.dense.weight)
    assert torch.equal(dense[0], dense[1]) and not torch.equal(dense[0], dense[2])
    assert not torch.equal(dense[0], MLMHead.pretrained(backbone).model.cls.predictions.transform.dense.weight)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra"])
def test_a_checkpoint_without_a_head_says_so_and_names_the_way_out(architecture, make_model):
    folder = make_model(architecture)
    message = f"^{folder} has no masked-language-model head \\(no .*auxiliary.mlm.head=new makes a fresh one$"
    before = torch.get_rng_state()
    with pytest.raises(UserError, match=message) as error:
        MLMHead.pretrained(load_backbone(str(folder)))
    assert "\n" not in str(error.value)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_saved_encoder_has_no_head(make_checkpoint, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_checkpoint("bert"), pooling="cls")
    MLMHead.pretrained(encoder.backbone)
    encoder.save_pretrained(tmp_path / "encoder")
    assert not [name for name in load_file(tmp_path / "encoder" / "model.safetensors") if "cls." in name]
    again = SentenceEncoder.from_pretrained(tmp_path / "encoder")
    with pytest.raises(UserError, match="has no masked-language-model head"):
        MLMHead.pretrained(again.backbone)


def test_part_of_a_head_is_none(make_checkpoint, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(make_checkpoint("bert"), folder)
    weights = load_file(folder / "model.safetensors")
    del weights["cls.predictions.transform.LayerNorm.bias"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"\(no cls.predictions.transform.LayerNorm.bias\)"):
        MLMHead.pretrained(load_backbone(str(folder)))


@pytest.mark.parametrize("change", ["gone", "damaged", "unknown"])
def test_a_checkpoint_that_cannot_be_read_again_ends_in_one_line(change, make_checkpoint, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(make_checkpoint("bert"), folder)
    backbone = load_backbone(str(folder))
    if change == "gone":
        shutil.rmtree(folder)
    elif change == "damaged":
        (folder / "model.safetensors").write_bytes(b"no weights")
    else:
        backbone.config.name_or_path = ""
    with pytest.raises(UserError, match="^.*; auxiliary.mlm.head=new makes a fresh one$") as error:
        MLMHead.pretrained(backbone)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["pretrained", "fresh"])
def test_an_architecture_that_has_no_masked_language_model_says_so(kind, tmp_path):
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    backbone = Wav2Vec2Model(Wav2Vec2Config(**small, conv_dim=[16], conv_stride=[5], conv_kernel=[10]))
    with pytest.raises(UserError, match="^auxiliary.mlm: transformers has no masked language model for wav2vec2$"):
        getattr(MLMHead, kind)(backbone)


def test_a_checkpoint_of_training_loads_again_and_holds_shared_weights_once(make_checkpoint):
    def module():
        backbone = load_backbone(str(make_checkpoint("bert")))
        return torch.nn.ModuleDict({"backbone": backbone, "head": MLMHead.pretrained(backbone)})

    trained, file = module(), io.BytesIO()
    with torch.no_grad():
        trained["backbone"].get_input_embeddings().weight.add_(1)
    torch.save(trained.state_dict(), file)
    vocabulary_weights = trained["backbone"].get_input_embeddings().weight.numel()
    all_weights = sum(weight.numel() for weight in trained.parameters())
    assert 4 * all_weights < file.tell() < 4 * (all_weights + vocabulary_weights)
    file.seek(0)
    again = module()
    again.load_state_dict(torch.load(file, weights_only=True))
    decoder, embeddings = again["head"].model.get_output_embeddings(), again["backbone"].get_input_embeddings()
    assert decoder.weight is embeddings.weight
    assert torch.equal(embeddings.weight, trained["backbone"].get_input_embeddings().weight)


def test_a_head_is_loaded_ready_to_train_and_no_code_of_the_checkpoint_is_run(make_checkpoint, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(make_checkpoint("bert"), folder)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForMaskedLM": "code.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    head = MLMHead.pretrained(load_backbone(str(folder)))
    assert {module.training for module in head.modules()} == {True}
    assert not (tmp_path / "ran").exists()
