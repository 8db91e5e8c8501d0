"""Static embeddings: values (transformers and numpy), and the same vectors in model2vec and sentence-transformers."""

import json

import numpy as np
import pytest
import torch
from model2vec import StaticModel
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from transformers import AutoModel, AutoTokenizer

from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import load_encoder
from simcse_pl.models.static_embeddings import distill
from simcse_pl.postprocessing.linear import RemoveComponents
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import write_json
from tests.conftest import SENTENCES

TEXTS = [*SENTENCES, "word " * 600, "", "🙂 dogs"]  # the last begins with an unknown token


@pytest.fixture
def folder(make_model, tmp_path):
    distill(SentenceEncoder.from_pretrained(make_model("bert"), "mean"), dim=8).save_pretrained(tmp_path / "static")
    return tmp_path / "static"


@pytest.mark.parametrize("architecture", ["bert", "gpt2"])
def test_a_token_has_its_weighted_principal_components(architecture, make_model):
    model = make_model(architecture)
    found = distill(SentenceEncoder.from_pretrained(model, "mean"), dim=6, sif=1e-3).vectors.double().numpy()
    tokenizer, backbone = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    ids = [i for i in range(len(tokenizer)) if i not in tokenizer.all_special_ids]
    before, after = ([tokenizer.cls_token_id], [tokenizer.sep_token_id]) if architecture == "bert" else ([], [])
    with torch.no_grad():
        vectors = [backbone(torch.tensor([[*before, i, *after]])).last_hidden_state[0].mean(dim=0).numpy() for i in ids]
    x = np.array(vectors, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    frequencies = 1 / np.arange(2, len(ids) + 2)
    weights = 1e-3 / (1e-3 + frequencies / frequencies.sum())
    expected = weights[:, None] * (left * sizes)[:, :6]
    np.testing.assert_allclose(found[ids] @ found[ids].T, expected @ expected.T, atol=1e-5)  # signs are arbitrary
    assert not found[tokenizer.all_special_ids].any()


def test_a_table_is_that_of_the_truncated_vectors(make_model):
    """Their components are those of the same vectors from a post-processing that cuts them off."""
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean")
    encoder.postprocess = RemoveComponents(1)
    encoder.postprocess.restore(32, {"mean": torch.zeros(32), "matrix": torch.eye(32)[:, :6]})
    encoder.postprocess.width = 32
    cut = SentenceEncoder.from_pretrained(make_model("bert"), "mean", truncate_dim=6)
    torch.testing.assert_close(distill(cut).vectors, distill(encoder).vectors)


def test_other_libraries_compute_the_same_vectors(folder):
    vectors = load_encoder(str(folder)).encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 8)
    np.testing.assert_allclose(StaticModel.from_pretrained(folder).encode(TEXTS), vectors, atol=2e-3)  # in float16
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS[:-2])
    np.testing.assert_allclose(theirs, vectors[:-2], atol=2e-3)
    plain = load_encoder(str(folder), normalize=False, truncate_dim=3).encode(TEXTS)
    assert plain.shape == (len(TEXTS), 3) and not plain[-2].any()


@pytest.mark.parametrize("option", [{"pooling": "cls"}, {"num_layers": 3}, {"truncate_dim": 0}, {"truncate_dim": 9}])
def test_an_option_without_effect_is_an_error(option, folder):
    ((name, value),) = option.items()
    with pytest.raises(UserError, match=f"^{name}={value}: "):
        load_encoder(str(folder), **option)


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"batch_size": -1}, {"prompt_name": "other"}])
def test_a_wrong_argument_of_encode_is_an_error_for_every_encoder(wrong, folder, make_model):
    static = load_encoder(str(folder))
    static.prompts = {None: "", "query": "query: "}
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mean", prompts={"query": "query: "})
    ((name, value),) = wrong.items()
    for own in (static, encoder):
        with pytest.raises(UserError, match=f"^{name}={value}: "):
            own.encode(["a dog"], **wrong)


@pytest.mark.parametrize("max_length", [{}, {"max_length": 7}, {"max_length": None}])
def test_texts_are_truncated_as_by_model2vec(max_length, folder):
    """Models on the hub name no maximum; model2vec then cuts texts to 512 tokens, and before that to characters."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["max_length"]
    path.write_text(json.dumps(config | max_length))
    texts = [*TEXTS, "the dog " + "word " * 600, "word " * 511 + "the dog runs", "internationalization " * 400 + "dog"]
    expected = StaticModel.from_pretrained(folder).encode(texts)
    np.testing.assert_allclose(load_encoder(str(folder)).encode(texts), expected, atol=2e-3)


def test_what_was_loaded_is_saved_again(folder, tmp_path):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_length": 7}))
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"q": "the "}, "default_prompt_name": "q"})
    first = load_encoder(str(folder))
    first.save_pretrained(tmp_path)
    again = load_encoder(str(tmp_path))
    assert again.prompts == first.prompts == {"q": "the ", None: "the "}
    texts = [*TEXTS, "the dog runs " * 9]
    torch.testing.assert_close(again.encode(texts), first.encode(texts))


def test_shared_vectors_and_weights_of_a_quantized_vocabulary_are_read(folder):
    embeddings = load_file(folder / "model.safetensors")["embeddings"]
    mapping, weights = torch.arange(len(embeddings)) // 2, torch.linspace(0.5, 2, len(embeddings))
    shared = {"embeddings": embeddings[: len(embeddings) // 2 + 1].clone(), "mapping": mapping, "weights": weights}
    save_file(shared, folder / "model.safetensors")
    vectors = StaticModel.from_pretrained(folder).encode(TEXTS)
    np.testing.assert_allclose(vectors, load_encoder(str(folder)).encode(TEXTS), atol=2e-3)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_folder_of_sentence_transformers_has_its_vectors(normalize, make_model, tmp_path):
    """Unknown tokens count, texts are truncated as the tokenizer says, and sentences have prompts."""
    tokenizer = AutoTokenizer.from_pretrained(make_model("bert")).backend_tokenizer
    tokenizer.enable_truncation(9)
    vectors = torch.randn(tokenizer.get_vocab_size(), 8, generator=torch.Generator().manual_seed(0))
    static = modules.StaticEmbedding(tokenizer, embedding_weights=vectors)
    how = {"prompts": {"query": "A man: ", "document": "dogs "}, "default_prompt_name": "query"}
    how |= {} if normalize else {"truncate_dim": 5}
    library = SentenceTransformer(modules=[static, *[modules.Normalize()] * normalize], device="cpu", **how)
    library.save(str(tmp_path))
    ours = load_encoder(str(tmp_path))
    for name in (None, "query", "document"):
        expected = library.encode(TEXTS, prompt_name=name)
        np.testing.assert_allclose(ours.encode(TEXTS, prompt_name=name), expected, atol=1e-6)
    ours.save_pretrained(tmp_path / "again")  # in float16
    torch.testing.assert_close(
        load_encoder(str(tmp_path / "again")).encode(TEXTS), ours.encode(TEXTS), atol=2e-3, rtol=0
    )


@pytest.mark.parametrize("more", [[modules.Dense(8, 8)], [modules.LayerNorm(8)], [modules.Normalize()]])
def test_modules_that_are_not_supported_are_an_error(more, make_model, tmp_path):
    static = modules.StaticEmbedding(AutoTokenizer.from_pretrained(make_model("bert")), embedding_dim=8)
    SentenceTransformer(modules=[static, *more], device="cpu", truncate_dim=5).save(str(tmp_path))
    with pytest.raises(UserError, match="static embeddings with the modules StaticEmbedding, .* are not supported$"):
        load_encoder(str(tmp_path))


def test_a_damaged_folder_is_one_line(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=f"{folder}: its static embeddings are damaged: "):
        load_encoder(str(folder))
