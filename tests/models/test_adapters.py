"""Adapters: saved without their base, loaded by PEFT and sentence-transformers, merged, and what cannot be loaded."""

import shutil

import peft
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, BitsAndBytesConfig

from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.methods.diffcse import ReplacedTokenDetection
from simcse_pl.methods.infocse import SentenceMaskedLanguageModeling
from simcse_pl.methods.tsdae import DenoisingAutoEncoder
from simcse_pl.models.adapters import adapter_parameters, merge_adapter
from simcse_pl.models.backbone import has_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.sentence_transformers_format import MODULES_FILE, REFUSED
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.losses.cases import batch_of
from tests.support.helpers import change_json, library_vectors, save_checkpoint

CONFIGS = {
    "lora": lambda: peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"),
    "tokens": lambda: peft.LoraConfig(r=4, target_modules=["q_proj"], trainable_token_indices=[5, 6]),
    "modules": lambda: peft.LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["embed_tokens", "norm"]),
    "biases": lambda: peft.LoraConfig(r=4, target_modules=["query"], bias="all"),
    "some biases": lambda: peft.LoraConfig(r=4, target_modules=["dense"], bias="lora_only"),
    "dora": lambda: peft.LoraConfig(r=4, target_modules="all-linear", use_dora=True),
    "ia3": lambda: peft.IA3Config(target_modules=["q_proj", "v_proj"], feedforward_modules=[]),
}


def changed(folder, kind="lora", **options):
    """Return an encoder whose new adapter changes its vectors."""
    encoder = SentenceEncoder.from_pretrained(folder, **{"pooling": "last_token"} | options, adapter=CONFIGS[kind]())
    with torch.no_grad():
        for weight in encoder.backbone.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight) * 0.1)
    return encoder


def close(vectors, expected, atol=1e-5):
    torch.testing.assert_close(torch.as_tensor(vectors), expected, atol=atol, rtol=0)


@pytest.fixture
def saved(make_model, tmp_path):
    """The folder of an encoder with an adapter."""
    changed(make_model("llama")).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [("llama", kind) for kind in CONFIGS if "biases" not in kind] + [(other, "lora") for other in ("gpt2", "bert")],
)
def test_a_saved_adapter_has_equal_vectors_everywhere(architecture, kind, make_model, tmp_path):
    encoder = changed(make_model(architecture), kind)
    vectors = encoder.encode(SENTENCES)
    plain = SentenceEncoder.from_pretrained(make_model(architecture), pooling="last_token").encode(SENTENCES)
    assert (vectors - plain).abs().max() > 1e-2
    encoder.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("model*")) and not (tmp_path / "config.json").exists()
    loaded = SentenceEncoder.from_pretrained(tmp_path)
    close(loaded.encode(SENTENCES), vectors, 0)
    if kind == "dora":  # transformers does not read its magnitudes
        assert REFUSED in (tmp_path / MODULES_FILE).read_text()
    else:
        close(library_vectors(tmp_path, SENTENCES), vectors)
    theirs = peft.PeftModel.from_pretrained(AutoModel.from_pretrained(make_model(architecture)), str(tmp_path))
    inputs = encoder.templates.batch(encoder.templates.tokens_of(SENTENCES, 64))
    with torch.no_grad():
        states = theirs.eval()(**inputs).last_hidden_state
    close(states[torch.arange(len(states)), inputs["attention_mask"].sum(dim=1) - 1], vectors)


def test_a_loaded_adapter_can_be_trained_further_and_saved_again(saved, tmp_path):
    encoder = SentenceEncoder.from_pretrained(saved).train()
    trained = {name for name, weight in encoder.backbone.named_parameters() if weight.requires_grad}
    assert trained == adapter_parameters(encoder.backbone)
    encoder(encoder.templates.batch(encoder.templates.tokens_of(SENTENCES, 20))).sum().backward()
    with torch.no_grad():
        for name, weight in encoder.backbone.named_parameters():
            if name in trained:
                weight.sub_(weight.grad)
    encoder.eval().save_pretrained(tmp_path / "again")
    close(SentenceEncoder.from_pretrained(tmp_path / "again").encode(SENTENCES), encoder.encode(SENTENCES), 0)


@pytest.mark.parametrize("options", [{"target_modules": ["dense"]}, {"target_modules": ["query"], "bias": "all"}])
def test_an_adapter_that_changes_a_pooler_too_is_loaded_without_it(options, make_model, tmp_path):
    """sentence-transformers keeps BERT's pooler, which mean pooling does not read (its issue 2979)."""
    library = SentenceTransformer(str(make_model("bert")), device="cpu")
    library.add_adapter(peft.LoraConfig(r=4, init_lora_weights=False, **options))
    with torch.no_grad():
        for name, weight in library.named_parameters():
            weight.mul_(1 + 9 * ("lora_B" in name))  # so that vectors change whatever the random weights are
    library.save_pretrained(str(tmp_path))
    loaded = SentenceEncoder.from_pretrained(tmp_path).encode(SENTENCES)
    torch.testing.assert_close(loaded, torch.tensor(library.encode(SENTENCES)), atol=1e-5, rtol=0)
    base = SentenceEncoder.from_pretrained(make_model("bert"), "mean").encode(SENTENCES)
    assert (loaded - base).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("architecture", "head", "options"),
    [
        ("llama", "CausalLM", {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}),
        ("llama", "SequenceClassification", {"target_modules": "all-linear", "task_type": "SEQ_CLS"}),
        ("bert", "SequenceClassification", {"target_modules": "all-linear", "task_type": "SEQ_CLS"}),
        ("bert", "MaskedLM", {"target_modules": ["dense"]}),
    ],
)
def test_an_adapter_of_a_model_with_a_head_is_loaded_without_that(architecture, head, options, make_model, tmp_path):
    model = getattr(transformers, f"AutoModelFor{head}").from_pretrained(make_model(architecture)).eval()
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, init_lora_weights=False, **options))
    with torch.no_grad():
        for weight in adapted.parameters():
            weight.mul_(1 + weight.requires_grad)
    adapted.save_pretrained(tmp_path)
    shutil.copy(make_model(architecture) / "tokenizer.json", tmp_path)
    encoder = SentenceEncoder.from_pretrained(tmp_path, "last_token")
    ids = encoder.tokenizer(SENTENCES[0], return_tensors="pt")["input_ids"]
    expected = model.base_model(ids).last_hidden_state[:, -1]
    close(encoder.encode(SENTENCES[:1]), expected)
    encoder.save_pretrained(tmp_path / "again")
    close(library_vectors(tmp_path / "again", SENTENCES[:1]), expected)


def test_an_adapter_replaces_whole_weights_of_any_format(make_model, tmp_path):
    (tmp_path / "pytorch_model.bin").touch()  # a folder that has them is loaded without its adapter
    encoder = changed(make_model("llama"))
    encoder.save_pretrained(tmp_path)
    close(SentenceEncoder.from_pretrained(tmp_path).encode(SENTENCES), encoder.encode(SENTENCES), 0)


@pytest.mark.parametrize("options", [{"bidirectional": True, "num_layers": 2}, {"pooling": "first_last"}])
def test_a_merged_adapter_is_a_whole_encoder_with_equal_vectors(options, make_model, tmp_path):
    encoder = changed(make_model("qwen3"), **options)
    vectors = encoder.encode(SENTENCES)
    encoder.save_pretrained(tmp_path / "adapter")
    assert REFUSED in (tmp_path / "adapter" / MODULES_FILE).read_text()  # other libraries would ignore the options
    encoder = SentenceEncoder.from_pretrained(tmp_path / "adapter")
    merge_adapter(encoder.backbone)
    assert not has_adapter(encoder.backbone)
    encoder.save_pretrained(tmp_path / "merged")
    close(SentenceEncoder.from_pretrained(tmp_path / "merged").encode(SENTENCES), vectors)
    close(library_vectors(tmp_path / "merged", SENTENCES), vectors)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (peft.LoraConfig(init_lora_weights="pissa_niter_4"), "pissa_niter_4"),
        (peft.AdaLoraConfig(total_step=9), "AdaLoraConfig"),
        (peft.RandLoraConfig(), "RandLoraConfig"),
    ],
)
def test_an_adapter_that_is_not_loaded_as_it_was_saved_is_an_error(config, what, make_model):
    with pytest.raises(UserError, match=f"^adapter: {what} is loaded with other weights"):
        SentenceEncoder.from_pretrained(make_model("llama"), "last_token", adapter=config)


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [("llama", "lora"), ("llama", "tokens"), ("llama", "modules"), ("bert", "biases"), ("bert", "some biases")],
)
def test_what_is_trained_beside_an_adapter_is_in_each_file(architecture, kind, make_model, tmp_path):
    encoder = changed(make_model(architecture), kind)
    save_checkpoint(encoder, tmp_path / "last.ckpt")
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    assert {name.removeprefix("encoder.backbone.") for name in state} == adapter_parameters(encoder.backbone)
    vectors = encoder.encode(SENTENCES)
    close(SentenceEncoder.from_pretrained(tmp_path / "last.ckpt").encode(SENTENCES), vectors, 0)
    merge_adapter(encoder.backbone)
    encoder.save_pretrained(tmp_path / "merged")
    close(SentenceEncoder.from_pretrained(tmp_path / "merged").encode(SENTENCES), vectors)
    close(library_vectors(tmp_path / "merged", SENTENCES), vectors)


def test_new_weights_beside_a_base_in_bfloat16_are_float32(make_model, tmp_path):
    encoder = changed(make_model("llama"), dtype="bfloat16", head="mlp")
    types = {weight.dtype for weight in encoder.backbone.parameters() if weight.requires_grad}
    assert types == {torch.float32} and encoder.backbone.embed_tokens.weight.dtype == torch.bfloat16
    vectors = encoder.encode(SENTENCES)
    encoder.save_pretrained(tmp_path)
    whole = SentenceEncoder.from_pretrained(tmp_path)  # the base in float32
    assert vectors.dtype == torch.float32 and 0 < (whole.encode(SENTENCES) - vectors).abs().max() < 0.1


def test_a_base_in_4_bits_trains_an_adapter_that_is_saved_without_it(make_model, tmp_path):
    four_bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype="float32")
    encoder = changed(make_model("llama", hidden_size=64), quantization=four_bits)
    assert encoder.backbone.layers[0].mlp.up_proj.base_layer.weight.dtype == torch.uint8
    encoder(encoder.templates.batch(encoder.templates.tokens_of(SENTENCES, 20))).sum().backward()
    encoder.save_pretrained(tmp_path / "encoder")
    save_checkpoint(encoder, tmp_path / "last.ckpt")
    with pytest.raises(UserError, match="^the adapter cannot be merged: "):
        merge_adapter(encoder.backbone)
    whole = SentenceEncoder.from_pretrained(tmp_path / "encoder").encode(SENTENCES)
    close(SentenceEncoder.from_pretrained(tmp_path / "last.ckpt").encode(SENTENCES), whole, 0)
    assert torch.cosine_similarity(whole, encoder.encode(SENTENCES)).min() > 0.9


@pytest.mark.parametrize("beside", [True, False])
def test_a_relative_base_is_beside_the_adapter_or_in_the_current_folder(
    beside, saved, make_model, tmp_path, monkeypatch
):
    vectors = SentenceEncoder.from_pretrained(saved).encode(SENTENCES)
    change_json(saved / "adapter_config.json", base_model_name_or_path="../base")
    shutil.copytree(make_model("llama"), tmp_path / ("base" if beside else "here/base"))
    if beside:  # the model of another project
        shutil.copytree(make_model("llama", initializer_range=0.5), tmp_path / "here" / "base")
    (tmp_path / "here" / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "here" / "inner")
    close(SentenceEncoder.from_pretrained(saved).encode(SENTENCES), vectors, 0)


def test_an_adapter_on_a_base_whose_weights_have_changed_is_an_error(make_model, tmp_path):
    shutil.copytree(make_model("llama"), tmp_path / "base")
    encoder = changed(str(tmp_path / "base"))
    encoder.save_pretrained(tmp_path / "adapter")
    save_checkpoint(encoder, tmp_path / "last.ckpt")
    shutil.copytree(make_model("llama", initializer_range=0.03), tmp_path / "base", dirs_exist_ok=True)
    for name in ("adapter", "last.ckpt"):
        with pytest.raises(UserError, match="its adapter belongs to other weights than .*base has: restore"):
            SentenceEncoder.from_pretrained(tmp_path / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"megatron_config": {"a": 1}}, "megatron_config makes PEFT import the code it "),
        ({"r": 2}, "cannot load its adapter|does not fit the base model"),
    ],
)
def test_a_damaged_config_is_one_line(change, message, saved):
    change_json(saved / "adapter_config.json", **change)
    with pytest.raises(UserError, match=message):
        SentenceEncoder.from_pretrained(saved)


def test_an_adapter_on_weights_that_its_folder_cannot_name_is_an_error(make_model, tmp_path):
    folder, options = make_model("bert"), {"pooling": "mean", "adapter": CONFIGS["lora"]()}
    with pytest.raises(UserError, match="adapter: its folder would name .* as the base model"):
        SentenceEncoder.from_pretrained(folder, **options, pretrained=False)
    save_checkpoint(SentenceEncoder.from_pretrained(folder, "mean"), tmp_path / "last.ckpt")
    with pytest.raises(UserError, match=r"adapter: .*last.ckpt is no base model"):
        SentenceEncoder.from_pretrained(str(tmp_path / "last.ckpt"), **options)


@pytest.mark.parametrize(
    "loss",
    [
        MaskedLanguageModeling(),
        MaskedLanguageModeling(tied=False),
        ReplacedTokenDetection(),
        SentenceMaskedLanguageModeling(frozen_layers=2, layers=1),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_the_networks_of_losses_are_trained_in_float32_beside_a_base_in_bfloat16(loss, make_masked_language_model):
    options = {"pooling": "cls", "head": "none", "adapter": CONFIGS["lora"](), "dtype": "bfloat16"}
    encoder = SentenceEncoder.from_pretrained(make_masked_language_model("bert"), **options)
    loss.attach(encoder)
    loss(batch_of(encoder)).backward()
    trained = [weight for weight in loss.parameters() if weight.requires_grad]
    assert {weight.dtype for weight in trained} == {torch.float32}
    assert any(weight.grad is not None and weight.grad.any() for weight in trained)
    with pytest.raises(UserError, match="model.dtype=bfloat16: small updates of the new cross-attention"):
        DenoisingAutoEncoder().attach(encoder)
