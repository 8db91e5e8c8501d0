"""The index against brute force in float64, its two kinds of index against each other, and folders that are damaged."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from simcse_pl import sentence_index, vector_index
from simcse_pl.errors import UserError
from simcse_pl.files import sha256_of
from simcse_pl.index_files import SENTENCES_FILE, SETTINGS_FILE, VECTORS_FILE
from simcse_pl.sentence_index import SentenceIndex

DIM = 16


class Table:
    """An `encode` that looks its sentences up, and counts what it was asked for."""

    def __init__(self, vectors, name="s"):
        self.vectors = {f"{name} {i}": vector for i, vector in enumerate(vectors)}
        self.asked = []

    def __call__(self, sentences):
        assert isinstance(sentences, list)
        self.asked += sentences
        return torch.stack([self.vectors[sentence] for sentence in sentences])


@pytest.fixture
def encode():
    """Sentences `s 0` to `s 499`, of vectors of many lengths."""
    return Table(torch.randn(500, DIM) * torch.rand(500, 1) * 9)


def names(numbers):
    return [f"s {i}" for i in numbers]


def brute_force(encode, corpus, query, count):
    """The cosines of the nearest sentences, in float64, the query itself left out."""
    others = [sentence for sentence in dict.fromkeys(corpus) if sentence != query]
    vectors = np.stack([encode.vectors[sentence].double().numpy() for sentence in others])
    vector = encode.vectors[query].double().numpy()
    cosines = vectors @ vector / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vector)
    nearest = np.argsort(-cosines)[:count]
    return [others[i] for i in nearest], cosines[nearest]


@pytest.mark.parametrize("options", [{}, {"kind": "ivf", "lists": 7, "probes": 7}])
@pytest.mark.parametrize("at_a_time", [64, 16384])
def test_the_nearest_are_those_of_brute_force(options, at_a_time, encode, monkeypatch):
    monkeypatch.setattr(sentence_index, "_SENTENCES_AT_A_TIME", at_a_time)
    corpus, queries = names(range(450)), names(range(430, 500))  # 20 of the queries are in the corpus
    found = SentenceIndex.build(encode, corpus, **options).search(queries, count=5, leave_out_equal=True)
    assert len(found) == len(queries)
    for query, neighbours in zip(queries, found, strict=True):
        sentences, cosines = brute_force(encode, corpus, query, 5)
        assert [neighbour.sentence for neighbour in neighbours] == sentences
        np.testing.assert_allclose([neighbour.similarity for neighbour in neighbours], cosines, atol=1e-6)


def test_equal_sentences_are_encoded_and_shown_once(encode):
    index = SentenceIndex.build(encode, names([3, 1, 3, 3, 2, 1]))
    assert encode.asked == names([3, 1, 2])
    assert len(index) == 3 and len(index.search(["s 9"], count=6)[0]) == 3


def test_a_query_finds_itself_unless_equal_sentences_are_left_out(encode):
    encode.vectors["s 1"] = encode.vectors["s 0"] * 3
    index = SentenceIndex.build(encode, names(range(50)))
    for options, expected in (({}, "s 0"), ({"leave_out_equal": True}, "s 1")):
        ((sentence, similarity),) = index.search(["s 0"], count=1, **options)[0]
        assert sentence == expected
        assert similarity == pytest.approx(1) and similarity <= 1


def test_equally_near_sentences_stand_in_the_order_of_the_corpus(encode):
    for i in (7, 3, 9):
        encode.vectors[f"s {i}"] = encode.vectors["s 0"] * (1 + i)
    found = SentenceIndex.build(encode, names([9, 5, 3, 0, 7])).search(["s 0"], count=4)[0]
    assert [neighbour.sentence for neighbour in found] == names([9, 3, 0, 7])


def test_nothing_is_nearer_than_the_threshold(encode):
    index, queries = SentenceIndex.build(encode, names(range(400))), names(range(400, 450))
    everything, near = (index.search(queries, 400, threshold) for threshold in (None, 0.5))
    assert near == [[one for one in found if one.similarity >= 0.5] for found in everything]
    assert 0 < sum(map(len, near)) < 50 * 400 == sum(map(len, everything))


@pytest.mark.parametrize("threshold", [60, -1.5, float("nan")])
def test_a_threshold_that_no_cosine_has_is_told(threshold, encode):
    with pytest.raises(UserError, match=f"^threshold={threshold}: it must be from -1 to 1"):
        SentenceIndex.build(encode, names(range(3))).search(["s 0"], 2, threshold)


@pytest.mark.parametrize("corpus", [range(1), range(7), range(450)])
def test_faiss_and_the_exact_index_answer_the_same(corpus, encode, monkeypatch):
    monkeypatch.setattr(vector_index, "_SIMILARITIES_AT_ONCE", 1000)  # several parts
    count, found = min(10, len(corpus)), {}
    for has in (True, False):
        monkeypatch.setattr(vector_index, "has_faiss", lambda has=has: has)
        index = SentenceIndex.build(encode, names(corpus))
        assert isinstance(index.index, vector_index.ExactIndex) is not has
        found[has] = [one for near in index.search(names(range(430, 500)), count) for one in near]
    assert len(found[True]) == 70 * count
    for faiss, ours in zip(found[True], found[False], strict=True):
        assert faiss.sentence == ours.sentence and faiss.similarity == pytest.approx(ours.similarity, abs=1e-6)


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_what_is_added_is_found_as_if_it_had_been_there(kind, encode):
    options = {"lists": 3, "probes": 3} if kind == "ivf" else {}
    index = SentenceIndex.build(encode, names(range(300)), kind, **options)
    encode.asked.clear()
    assert index.add(names([299, 300, 301, 300])) == 2 and index.add(names(range(9))) == 0 == index.add([])
    assert encode.asked == names([300, 301]) and len(index) == 302
    whole = SentenceIndex.build(encode, names(range(302)), kind, **options)
    found, expected = (i.search(names(range(500)), 5) for i in (index, whole))
    assert [[n.sentence for n in near] for near in found] == [[n.sentence for n in near] for near in expected]


def test_an_index_made_with_faiss_is_read_without_it_and_the_other_way_round(encode, tmp_path, monkeypatch):
    SentenceIndex.build(encode, names(range(40))).save(tmp_path / "with")
    with monkeypatch.context() as without_faiss:
        without_faiss.setattr(vector_index, "has_faiss", lambda: False)
        index = SentenceIndex.load(tmp_path / "with", encode)
        assert isinstance(index.index, vector_index.ExactIndex) and index.add(["s 40"]) == 1
        index.save(tmp_path / "without")
    again = SentenceIndex.load(tmp_path / "without", encode)
    assert not isinstance(again.index, vector_index.ExactIndex)
    assert len(again) == 41 and again.search(["s 40"], 1)[0][0].sentence == "s 40"


def test_an_inverted_file_needs_faiss(encode, tmp_path, monkeypatch):
    SentenceIndex.build(encode, ["s 1"], "ivf").save(tmp_path)
    encode.asked.clear()
    monkeypatch.setattr(vector_index, "has_faiss", lambda: False)
    with pytest.raises(UserError, match="kind ivf needs FAISS: pip install faiss-cpu, or take kind exact"):
        SentenceIndex.build(encode, ["s 1"], "ivf")
    assert not encode.asked
    with pytest.raises(UserError, match="needs FAISS"):
        SentenceIndex.load(tmp_path, encode)


ROWS, CENTROIDS, PROBES = torch.ones(9, DIM), torch.ones(2, DIM), torch.tensor([2])


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"vectors": torch.ones(9)},
        {"vectors": torch.ones(9, 0)},
        {"vectors": ROWS.double()},
        {"vectors": ROWS / 0},
        {"vectors": ROWS, "centroids": CENTROIDS},
        {"vectors": ROWS, "centroids": CENTROIDS[:, 1:].clone(), "probes": PROBES},
        {"vectors": ROWS, "centroids": CENTROIDS, "probes": PROBES + 1},
        {"vectors": ROWS, "centroids": CENTROIDS, "probes": PROBES * 0},
        {"vectors": ROWS, "centroids": CENTROIDS, "probes": PROBES.float()},
        {"vectors": ROWS, "centroids": CENTROIDS * torch.nan, "probes": PROBES},
    ],
)
def test_vectors_of_another_form_are_damage(tensors, encode, tmp_path):
    SentenceIndex.build(encode, names(range(9))).save(tmp_path)
    save_file(tensors, tmp_path / VECTORS_FILE)
    sign(tmp_path, VECTORS_FILE)
    with pytest.raises(UserError, match=f"{tmp_path} is damaged: {VECTORS_FILE} must hold `vectors`"):
        SentenceIndex.load(tmp_path, encode)


def sign(folder, file):
    """Give a file the checksum that it has."""
    settings = json.loads((folder / SETTINGS_FILE).read_text())
    settings[file] = sha256_of(folder / file)
    (folder / SETTINGS_FILE).write_text(json.dumps(settings))


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_a_corpus_smaller_than_what_is_asked_for(kind, encode):
    index = SentenceIndex.build(encode, ["s 0"], kind)
    found = index.search(["s 0", "s 1"], count=10, leave_out_equal=True)
    assert [[n.sentence for n in near] for near in found] == [[], ["s 0"]]
    assert index.search([], count=10) == []


def test_an_inverted_file_of_more_lists_than_sentences(encode, capfd):
    index = SentenceIndex.build(encode, names(range(5)), "ivf", lists=100, probes=100)
    assert [n.sentence for n in index.search(["s 9"], 5)[0]] == brute_force(encode, names(range(5)), "s 9", 5)[0]
    assert "WARNING" not in "".join(capfd.readouterr())


def test_zero_vectors_are_like_nothing(encode):
    encode.vectors["s 0"] = torch.zeros(DIM)
    index = SentenceIndex.build(encode, names(range(4)))
    assert [neighbour.similarity for neighbour in index.search(["s 0"], 3)[0]] == [0, 0, 0]
    assert {n.sentence: n.similarity for n in index.search(["s 9"], 4)[0]}["s 0"] == 0


def test_an_inverted_file_recalls_nearly_all_of_clustered_vectors():
    centres = torch.randn(60, DIM)
    encode = Table(centres[torch.randint(60, (3000,))] + 0.3 * torch.randn(3000, DIM))
    corpus, queries = names(range(2900)), names(range(2900, 3000))
    index = SentenceIndex.build(encode, corpus, "ivf")
    assert (index.index.nlist, index.index.nprobe) == (53, 14)
    exact, approximate = (i.search(queries, 10) for i in (SentenceIndex.build(encode, corpus), index))
    pairs = [({n.sentence for n in a}, {n.sentence for n in b}) for a, b in zip(exact, approximate, strict=True)]
    assert sum(len(a & b) for a, b in pairs) > 0.95 * 1000
    coarse = SentenceIndex.build(encode, corpus, "ivf", probes=1).search(queries, 10)
    assert coarse != exact  # and so what is compared above is not the exact index twice


def test_an_inverted_file_is_the_same_every_time_and_leaves_the_random_state_alone(encode):
    state = torch.get_rng_state()
    first, second = (
        SentenceIndex.build(encode, names(range(400)), "ivf", probes=1).search(names(range(400, 500)), 10)
        for _ in range(2)
    )
    assert first == second and torch.equal(torch.get_rng_state(), state)


def test_the_encoders_own_vectors_are_left_as_they_are(encode):
    vectors = torch.randn(500, DIM)
    before = vectors.clone()
    SentenceIndex.build(lambda sentences: vectors[: len(sentences)], names(range(500))).search(["s 3"])
    assert torch.equal(vectors, before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_vectors_of_any_precision(dtype, encode):
    index = SentenceIndex.build(lambda sentences: encode(sentences).to(dtype), names(range(50)))
    assert [n.sentence for n in index.search(["s 60"], 1)[0]] == brute_force(encode, names(range(50)), "s 60", 1)[0]


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_a_saved_index_finds_the_same_without_encoding(kind, encode, tmp_path):
    encode.vectors["Zürich\n\u0085 🙂"] = torch.ones(DIM)
    corpus = [*encode.vectors][200:]
    index = SentenceIndex.build(encode, corpus, kind)
    index.save(tmp_path / "a" / "b")
    encode.asked.clear()
    loaded = SentenceIndex.load(tmp_path / "a" / "b", encode)
    assert encode.asked == corpus[:1]
    assert loaded.sentences == corpus and loaded.kind == kind
    assert loaded.search(names(range(100)), 7) == index.search(names(range(100)), 7)


def test_saving_again_leaves_nothing_of_before(encode, tmp_path):
    for kind in ("exact", "ivf", "exact"):
        SentenceIndex.build(encode, names(range(len(kind))), kind).save(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {VECTORS_FILE, SENTENCES_FILE, SETTINGS_FILE}
        assert len(SentenceIndex.load(tmp_path, encode)) == len(kind)


@pytest.mark.parametrize(
    ("kind", "file"),
    [("ivf", VECTORS_FILE), ("exact", VECTORS_FILE), ("exact", SENTENCES_FILE), ("exact", SETTINGS_FILE)],
)
@pytest.mark.parametrize("damage", ["missing", "cut short", "of another index"])
def test_damaged_folders_end_in_one_line(kind, file, damage, encode, tmp_path):
    for folder, numbers in (("mine", range(9)), ("other", range(9, 18))):
        SentenceIndex.build(encode, names(numbers), kind).save(tmp_path / folder)
    path = tmp_path / "mine" / file
    if damage == "missing":
        path.unlink()
    elif damage == "cut short":
        path.write_bytes(path.read_bytes()[:-30])
    else:
        path.write_bytes((tmp_path / "other" / file).read_bytes())
    with pytest.raises(UserError, match=f"{tmp_path / 'mine'}.*(missing|damaged)") as error:
        SentenceIndex.load(tmp_path / "mine", encode)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("settings", ["[]", "{}", '{"vectors.safetensors": 3, "sentences.json": null}'])
def test_settings_that_say_nothing_end_in_one_line(settings, encode, tmp_path):
    SentenceIndex.build(encode, names(range(9))).save(tmp_path)
    (tmp_path / SETTINGS_FILE).write_text(settings)
    with pytest.raises(UserError, match="damaged"):
        SentenceIndex.load(tmp_path, encode)


@pytest.mark.parametrize("content", ["{", '{"s 0": 1}', "[]", '["s 0"]'])
def test_sentences_that_do_not_fit_the_vectors_are_found_out_despite_their_checksum(content, encode, tmp_path):
    SentenceIndex.build(encode, names(range(9))).save(tmp_path)
    (tmp_path / SENTENCES_FILE).write_text(content)
    sign(tmp_path, SENTENCES_FILE)
    with pytest.raises(UserError, match=f"{tmp_path}.* is damaged"):
        SentenceIndex.load(tmp_path, encode)


def test_an_index_is_not_searched_with_another_encoder(encode, tmp_path):
    index = SentenceIndex.build(encode, names(range(9)))
    index.save(tmp_path)
    with pytest.raises(UserError, match="made with another encoder: its first sentence"):
        SentenceIndex.load(tmp_path, Table(torch.randn(500, DIM)))
    with pytest.raises(UserError, match="16 dimensions and the encoder gives 8"):
        SentenceIndex.load(tmp_path, Table(torch.randn(500, 8)))
    index.encode = Table(torch.randn(500, 8))
    with pytest.raises(UserError, match="16 dimensions and the encoder gives 8"):
        index.search(["s 0"])


def test_a_zero_vector_in_the_first_place_loads(encode, tmp_path):
    encode.vectors["s 0"] = torch.zeros(DIM)
    SentenceIndex.build(encode, names(range(9))).save(tmp_path)
    assert len(SentenceIndex.load(tmp_path, encode)) == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "the corpus has no sentences"),
        (("s 1",), "a list of sentences"),
        ((["s 1"], "hnsw"), "index hnsw: choose one of exact, ivf"),
        ((["s 1"], "ivf", 0), "lists=0"),
        ((["s 1"], "ivf", 1, -1), "probes=-1"),
    ],
)
def test_building_says_what_is_wrong(arguments, message, encode):
    with pytest.raises(UserError, match=message):
        SentenceIndex.build(encode, *arguments)


def test_searching_says_what_is_wrong(encode):
    index = SentenceIndex.build(encode, names(range(9)))
    with pytest.raises(UserError, match="count=0"):
        index.search(["s 1"], 0)
    with pytest.raises(UserError, match="a list of sentences"):
        index.search("s 1")


def test_a_vector_that_is_not_finite_is_named(encode, monkeypatch):
    monkeypatch.setattr(sentence_index, "_SENTENCES_AT_A_TIME", 3)
    encode.vectors["s 7"] = torch.full((DIM,), torch.nan)
    with pytest.raises(UserError, match="the vector of 's 7' is not finite"):
        SentenceIndex.build(encode, names(range(9)))


def test_faiss_before_torch_shares_a_process_with_it_on_several_threads(run_command):
    code = """
import faiss, torch
from simcse_pl.sentence_index import SentenceIndex
torch.set_num_threads(2)
faiss.omp_set_num_threads(2)
vectors, sentences = torch.randn(3000, 64), [str(i) for i in range(3000)]
for _ in range(3):
    index = SentenceIndex.build(lambda some: vectors[[int(s) for s in some]] @ torch.eye(64), sentences, "ivf")
    print(len(index.search(sentences[:200], 5)))
"""
    assert run_command("-c", code).stdout.split() == ["200"] * 3


def test_faiss_waits_until_it_is_needed(run_command):
    code = "import simcse_pl.sentence_index, sys; print('faiss' in sys.modules)"
    assert run_command("-c", code).stdout == "False\n"
