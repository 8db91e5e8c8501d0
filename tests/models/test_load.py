"""Folders of any name, checkpoints and bare state dicts are loaded by their path."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import normalizers, pre_tokenizers, processors
from transformers import AutoModel

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import fingerprint, load_encoder
from simcse_pl.models.settings import EncoderSettings
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.models.static_embeddings import StaticEmbeddings
from simcse_pl.models.word_vectors import WordVectors
from simcse_pl.postprocessing.linear import RemoveComponents, Whitening
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.support.helpers import change_json, save_checkpoint
from tests.support.tiny_models import train_tokenizers


def test_a_fingerprint_tells_configs_and_tokenizers_apart(make_model, tmp_path):
    """Two models of equal weights, whose vectors differ."""

    def saved(name, file, **changed):
        shutil.copytree(make_model("bert"), tmp_path / name)
        change_json(tmp_path / name / file, **changed)
        return SentenceEncoder.from_pretrained(tmp_path / name, "mean")

    tokenizer = json.loads((make_model("bert") / "tokenizer.json").read_text())
    plain, relu = saved("plain", "config.json"), saved("relu", "config.json", hidden_act="relu")
    cased = saved("cased", "tokenizer.json", normalizer=None if tokenizer["normalizer"] else {"type": "Lowercase"})
    same = saved("dropout", "config.json", hidden_dropout_prob=0.3, torchscript=False, pooler_type="x")
    plain.save_pretrained(tmp_path / "again")
    again = SentenceEncoder.from_pretrained(tmp_path / "again")
    assert fingerprint(plain) == fingerprint(same) == fingerprint(again)
    for other in (relu, cased):
        assert not torch.equal(other.encode(SENTENCES), plain.encode(SENTENCES))
        assert fingerprint(other) != fingerprint(plain)
    names = "mlp", "linear_gelu"
    tanh, gelu = (SentenceEncoder.from_pretrained(make_model("bert"), "mean", head=name) for name in names)
    gelu.projection.load_state_dict(tanh.projection.state_dict())
    assert fingerprint(tanh) != fingerprint(gelu)


def test_a_fingerprint_tells_all_that_changes_the_vectors(make_model):
    def load(**options):
        return SentenceEncoder.from_pretrained(make_model("bert"), **{"pooling": "mean", "max_length": 20} | options)

    changed, postprocess = load(), RemoveComponents(1).fit(load().encode(SENTENCES))
    changed.backbone.encoder.layer[2].output.dense.bias.data[0] += 1e-3
    template = {"template": "The hall : {sentence} ."}
    options = {"pooling": "max"}, {"max_length": 19}, {"normalize": True}, {"num_layers": 2}, template
    more = {"template_bias": "always"}, {"final_period": True}, {"template_as_text": "always"}
    found = [*map(fingerprint, [load(), changed, *(load(**own) for own in options)]), fingerprint(load(), postprocess)]
    found += [fingerprint(load(**template, **own)) for own in more]
    assert len({*found}) == 11 and found[0] == fingerprint(load())
    assert fingerprint(load(**template, template_bias="train_only")) == found[6]
    assert fingerprint(load(), RemoveComponents(1)) is None


def test_a_fingerprint_tells_averaged_vectors_apart(make_model):
    vectors, tokenizer = torch.randn(3, 5), SentenceEncoder.from_pretrained(make_model("bert"), "mean").tokenizer
    words = {"a": 0, "b": 1, "c": 2}
    other_words, whitening = {"b": 0, "a": 1, "c": 2}, Whitening(dim=2).fit(torch.randn(9, 5))
    plain, *others = [
        fingerprint(WordVectors(words, vectors)),
        fingerprint(WordVectors(words, vectors + 1)),
        fingerprint(WordVectors(words, vectors, normalize=True)),
        fingerprint(WordVectors(other_words, vectors)),
        fingerprint(WordVectors(words, vectors), whitening),
        fingerprint(StaticEmbeddings(tokenizer.backend_tokenizer, vectors, normalize=False)),
        fingerprint(StaticEmbeddings(tokenizer.backend_tokenizer, vectors, normalize=False, known_only=False)),
    ]
    assert plain == fingerprint(WordVectors(dict(words), vectors.clone()))
    assert len({plain, *others}) == 7 and None not in (plain, *others)
    assert fingerprint(WordVectors(words, vectors), Whitening()) is None  # it is not fitted


@pytest.mark.parametrize("name", ["folder.ckpt", "folder.txt", "best.ckpt"])
def test_the_options_replace_the_saved_ones(name, make_model, tmp_path):
    path = str(tmp_path / name)
    saved = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", max_length=20)
    save_checkpoint(saved, path) if name == "best.ckpt" else saved.save_pretrained(path)
    options = {"pooling": "layers_0_2", "num_layers": 2, "max_length": 9, "normalize": True}
    loaded, expected = load_encoder(path, **options), SentenceEncoder.from_pretrained(make_model("bert"), **options)
    assert torch.equal(loaded.encode(SENTENCES), expected.encode(SENTENCES))
    assert loaded.settings == EncoderSettings("layers_0_2", "none", 9, True)


def state_dict(folder, prefix):
    """Return what torch.save gets from a module that has a trained model of transformers, and a head."""
    model = AutoModel.from_pretrained(folder)
    torch.nn.init.normal_(model.pooler.dense.weight)
    torch.nn.init.normal_(model.embeddings.word_embeddings.weight)
    head = {"cls.predictions.bias": torch.zeros(3), "other.embeddings.word_embeddings.weight": torch.zeros(2, 2)}
    return model, {f"{prefix}{name}": weight for name, weight in model.state_dict().items()} | head


@pytest.mark.parametrize(
    ("file", "prefix"),
    [("simcse_unsup.pt", "bert."), ("epoch_0-loss_0.01", "encoder."), ("a.bin", "module.model.bert."), ("a.ckpt", "")],
)
@pytest.mark.parametrize("pooling", ["cls", "pooler"])
def test_a_bare_state_dict_is_loaded_with_the_backbone_it_belongs_to(
    file, prefix, pooling, make_model, tmp_path, caplog
):
    model, weights = state_dict(make_model("bert"), prefix)
    torch.save({"state_dict": weights} if file == "a.ckpt" else weights, tmp_path / file)
    with caplog.at_level("INFO"):
        encoder = load_encoder(f"{tmp_path}/{file}", pooling, backbone=str(make_model("bert")))
    model.save_pretrained(tmp_path / "whole")
    encoder.tokenizer.save_pretrained(tmp_path / "whole")
    expected = load_encoder(str(tmp_path / "whole"), pooling)
    assert torch.equal(encoder.encode(SENTENCES), expected.encode(SENTENCES))
    assert f"{prefix}*; not in the backbone: {prefix}pooler.dense.weight, " in caplog.text


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("bert.encoder.layer.2.output.dense.bias", None, "lack bert.encoder.layer.2.output.dense.bias of shape"),
        ("bert.embeddings.LayerNorm.bias", torch.zeros(7), r"lack bert.*LayerNorm.bias of shape \[32\] .1 missing"),
        ("bert.embeddings.word_embeddings.weight", None, r"lack embeddings\..* missing\)"),
    ],
)
def test_a_state_dict_of_another_backbone_is_an_error(name, change, line, make_model, tmp_path):
    model = AutoModel.from_pretrained(make_model("bert"))
    weights = {f"bert.{other}": weight for other, weight in model.state_dict().items()}
    del weights[name]
    save_file(weights | ({} if change is None else {name: change}), tmp_path / "a.safetensors")
    with pytest.raises(UserError, match=line):
        load_encoder(f"{tmp_path}/a.safetensors", "cls", backbone=str(make_model("bert")))


@pytest.mark.parametrize("named", ["RobertaTokenizer", "PreTrainedTokenizerFast", None])
def test_a_tokenizer_of_another_kind_than_its_file_is_a_warning(named, make_model, tmp_path, caplog):
    """transformers makes a tokenizer of the named class, or of the model's, from the words of tokenizer.json."""
    tokenizer = train_tokenizers(SENTENCES * 3, 300)["Unigram"]
    shutil.copytree(make_model("bert"), tmp_path, dirs_exist_ok=True)
    tokenizer.save_pretrained(tmp_path)
    change_json(tmp_path / "tokenizer_config.json", tokenizer_class=named)
    loaded = load_tokenizer(str(tmp_path))
    same = all(loaded.tokenize(text) == tokenizer.tokenize(text) for text in SENTENCES)
    assert same == (named == "PreTrainedTokenizerFast") == ("but tokenizer.json makes" not in caplog.text)


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "post_processor"])
def test_a_tokenizer_of_its_named_kind_that_splits_or_ends_otherwise_is_a_warning(part, make_model, tmp_path, caplog):
    """Ligatures, numbers as in OLMo 2 and Granite (issues 45812 and 45920 of transformers), and tokens at the end."""
    shutil.copytree(make_model("bert"), tmp_path, dirs_exist_ok=True)
    if part == "normalizer":
        words = train_tokenizers(SENTENCES * 3, 300)["byte-level BPE"].backend_tokenizer
        words.normalizer, words.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.ByteLevel(False)
        named = "GPT2Tokenizer"
    elif part == "pre_tokenizer":
        words = train_tokenizers(["In 1998 and 2023."] * 5, 300)["byte-level BPE"].backend_tokenizer
        digits = pre_tokenizers.Digits(individual_digits=True)
        words.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(False)])
        named = "GPT2Tokenizer"
    else:
        words = load_tokenizer(str(tmp_path)).backend_tokenizer
        words.post_processor = processors.TemplateProcessing("[CLS] $A", None, [("[CLS]", words.token_to_id("[CLS]"))])
        words.normalizer = normalizers.BertNormalizer()  # of the class
        named = "BertTokenizer"
    words.save(str(tmp_path / "tokenizer.json"))
    change_json(tmp_path / "tokenizer_config.json", tokenizer_class=named)
    loaded = load_tokenizer(str(tmp_path))
    assert loaded("In 1998, ﬁsh")["input_ids"] != words.encode("In 1998, ﬁsh").ids
    assert f"{named} makes [" in caplog.text and "but tokenizer.json makes [" in caplog.text


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_named(file, make_model, tmp_path):
    shutil.copytree(make_model("bert"), tmp_path, dirs_exist_ok=True)
    (tmp_path / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n")
    with pytest.raises(UserError, match=f"the model in {tmp_path}: {file} is a pointer of Git LFS: run `git lfs pull`"):
        load_encoder(str(tmp_path), "cls")


def test_a_folder_that_is_misspelt_is_said_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("simcse_pl.utils.hub.unavailable", None)  # the Hub is not asked
    (tmp_path / "enc" / "first").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name, said in {
        "enc/frist/encoder": "enc/frist does not exist; did you mean first?",
        "./enc/second": "enc/second does not exist",
        f"{tmp_path}/encs": f"{tmp_path}/encs does not exist; did you mean enc?",
    }.items():
        with pytest.raises(UserError) as error:
            load_encoder(name, "cls")
        assert str(error.value) == f"cannot load model {name}: {said}"


def test_weights_alone_need_a_backbone(sentences):
    with pytest.raises(UserError, match="add backbone="):
        SentenceEncoder.from_pretrained(sentences.rename(sentences.with_suffix(".pt")), "cls")
