"""Word vectors: splitting, averages (numpy, gensim), the formula of smooth inverse frequency, damaged files."""

import gzip

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gensim.models import KeyedVectors

from simcse_pl.models import word_vectors
from simcse_pl.models.word_vectors import WordVectors, split_words
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

WORDS = {
    "the": [1.0, 0.0, 2.0],
    "dog": [0.5, -1.25, 3e-2],
    "Dog": [9.0, 9.0, 9.0],
    "runs": [-0.25, 4.0, 1.0],
    "n't": [0.0, 0.0, -7.0],
    ".": [1e-3, 2.0, 0.125],
}


def lines(words=WORDS):
    return [f"{word} {' '.join(map(str, vector))}" for word, vector in words.items()]


@pytest.fixture
def write(tmp_path):
    """Write lines to a file."""

    def write(content, name="vectors.txt", end="\n"):
        text = (end.join(content) + end).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write


def mean(*words):
    return torch.from_numpy(np.mean([WORDS[word] for word in words], axis=0)).float()


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("A dog runs.", "A dog runs ."),
        ("He doesn't; she WON'T, can't.", "He does n't ; she WO N'T , ca n't ."),
        ("It’s John's, we’ve “seen” it", "It 's John 's , we 've \" seen \" it"),
        ("the U.S. and e.g. 3.14 or 1,000,000 at 10:30", "the U.S. and e.g. 3.14 or 1,000,000 at 10:30"),
        ("a mother-in-law, a 2.5-hour film -- well...", "a mother-in-law , a 2.5-hour film -- well ..."),
        ("(what?!) $5, 20%", "( what ? ! ) $ 5 , 20 %"),
        ("do n't 'she said'", "do n't ' she said '"),
        ("naïve Σίσυφος\u0085日本語\xa0x\ty\n", "naïve Σίσυφος 日本語 x y"),
        ("", ""),
        (" \u2028 ", ""),
    ],
)
def test_a_sentence_is_split_into_words(sentence, words):
    assert split_words(sentence) == words.split()


def test_a_vector_is_the_mean_of_its_words(write):
    vectors = WordVectors.from_file(write(lines()))
    assert vectors.dim == 3
    found = vectors.encode(["The dog doesn't run.", "Dog dog", "RUNS the the"])
    expected = [mean("the", "dog", "n't", "."), mean("Dog", "dog"), mean("runs", "the", "the")]
    torch.testing.assert_close(found, torch.stack(expected))
    assert found.dtype == torch.float32


def test_sentences_of_no_known_word_are_zero(write):
    vectors = WordVectors.from_file(write(lines()))
    for normalize in (False, True):
        found = vectors.encode(["", "unheard of", "the", " "], batch_size=2, normalize=normalize)
        assert torch.equal(found[[0, 1, 3]], torch.zeros(3, 3)) and found[2].any()
    assert vectors.encode([]).shape == (0, 3)


def test_a_vector_is_the_same_whatever_it_is_batched_with(write):
    generator = np.random.default_rng(0)
    words = {word: generator.standard_normal(50).tolist() for s in SENTENCES for word in split_words(s)}
    vectors = WordVectors.from_file(write(lines(words)))
    alone = torch.cat([vectors.encode([sentence]) for sentence in SENTENCES])
    expected = [np.mean([words[word] for word in split_words(sentence)], axis=0) for sentence in SENTENCES]
    np.testing.assert_allclose(alone.numpy(), expected, atol=1e-6)
    for batch_size in (3, 64):
        assert torch.equal(vectors.encode(SENTENCES, batch_size=batch_size, progress=True), alone)
    torch.testing.assert_close(vectors.encode(SENTENCES, normalize=True), F.normalize(alone, dim=-1))


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.txt.gz"])
@pytest.mark.parametrize("form", ["glove", "word2vec", "a space at the end", "windows"])
@pytest.mark.parametrize("at_a_time", [1, 4, 4096])
def test_files_of_all_forms_hold_the_same(name, form, at_a_time, write, monkeypatch):
    monkeypatch.setattr(word_vectors, "_LINES_AT_A_TIME", at_a_time)
    content = lines()
    if form == "word2vec":
        content = [f"{len(WORDS)} 3", *content]
    elif form == "a space at the end":
        content = [f"{len(WORDS)} 3", *(f"{line} " for line in content)]
    vectors = WordVectors.from_file(write(content, name, "\r\n" if form == "windows" else "\n"), progress=True)
    assert list(vectors.rows) == list(WORDS)
    np.testing.assert_array_equal(vectors.vectors.numpy(), np.array(list(WORDS.values()), dtype=np.float32))


def test_a_file_of_gensim_reads_as_gensim_reads_it(tmp_path):
    model = KeyedVectors(vector_size=20)
    model.add_vectors([f"w{i}" for i in range(300)], np.random.default_rng(0).standard_normal((300, 20)))
    model.save_word2vec_format(str(tmp_path / "v.txt"))
    vectors = WordVectors.from_file(tmp_path / "v.txt")
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "v.txt"))
    assert list(vectors.rows) == theirs.index_to_key
    np.testing.assert_array_equal(vectors.vectors.numpy(), theirs.vectors)


def test_words_with_spaces_and_odd_characters_are_words(write):
    words = {
        "the": [1, 2],
        ". . .": [3, 4],
        "at name@domain.com": [5, 6],
        "\u0085": [7, 8],
        "\xa0": [9, 10],
        '"': [0, 1],
    }
    vectors = WordVectors.from_file(write(lines(words)))
    assert list(vectors.rows) == list(words)
    assert vectors.vectors.tolist() == list(words.values())


def test_the_first_of_a_words_vectors_counts(write):
    vectors = WordVectors.from_file(write(["dog 1 2", "cat 3 4", "dog 5 6"]))
    assert vectors.encode(["dog", "cat"]).tolist() == [[1, 2], [3, 4]]


def test_smooth_inverse_frequency_is_the_formula_of_its_paper(write):
    counts = {"the": 600.0, "dog": 30.0, "runs": 10.0, "elsewhere": 360.0}
    counted = write([f"{word} {count:.0f}" for word, count in counts.items()], "counts.txt")
    vectors = WordVectors.from_file(write(lines()), word_counts=counted)
    words = ["the", "Dog", "runs", "the", "."]  # "Dog" counts as "dog", and "." has no count
    weights = [0.001 / (0.001 + counts[w.lower()] / 1000) if w.lower() in counts else 1.0 for w in words]
    expected = sum(weight * np.array(WORDS[word]) for weight, word in zip(weights, words, strict=True)) / len(words)
    np.testing.assert_allclose(vectors.encode(["The Dog runs the unknown ."])[0].numpy(), expected, atol=1e-6)


def test_counts_may_be_of_capitals_of_tabs_and_repeated(write):
    counted = write(["Dog\t30", "dog 10", "", "runs 50", "runs 10"], "counts.txt.gz")
    vectors = WordVectors.from_file(write(lines()), word_counts=counted)
    weights = {word: vectors.weights[row].item() for word, row in vectors.rows.items()}
    assert weights == pytest.approx(
        {"Dog": 1 / 301, "dog": 1 / 101, "runs": 1 / 601} | dict.fromkeys(["the", "n't", "."], 1.0)
    )


@pytest.mark.parametrize("at_a_time", [2, 4096])
@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (["dog 1 2 3", "cat 1 2"], "line 2: 2 values where there should be 3"),
        (["dog 1 2 3", "cat 1 2 3", "cow 1 2 x"], "line 3: a value is no finite number"),
        (["dog 1 2 3", "cat 1 2 3", "a cow here"], "line 3: 2 values where"),
        (["dog 1 2 3", "cat 1 2 3", ". . . 1 x 3"], "line 3: a value is no finite number"),
        (["dog 1 2 3", "cat 1 nan 3"], "line 2: a value is no finite number"),
        (["dog 1 2 3", "cat 1 1e99 3"], "line 2: a value is no finite number"),
        (["dog 1 2 3", "cat 1 2\r9 3"], "line 2: a value is no finite number"),
        (["dog 1 2 3", "cat 1  3"], "line 2: a value is no finite number"),
        (["dog 1 2 3", "", "cat 1 2 3"], "line 2: 0 values where there should be 3"),
        (["dog 1 2 3", "cat\t1\t2\t3"], "line 2: 0 values"),
        (["3 3", "dog 1 2 3", "cat 1 2 3"], "2 words, and its first line says 3: is it cut short?"),
        (["2 3", "dog 1 2", "cat 1 2"], "line 2: a word and its 3 values should stand here, not 'dog 1 2'"),
        (["2 3", "dog 1 2 3 4", "cat 1 2 3 4"], "line 2: a word and its 3 values"),
        (["9 3"], "line 2: a word and its 3 values should stand here, not ''"),
        (["dog"], "line 1: `word v1 v2 ...` should stand here, not 'dog'"),
        (["A sentence of text.", "And one more."], "line 2: 2 values where there should be 3"),
        (["A sentence of text."], "line 1: a value is no finite number"),
        (["dog 1", "cat"], "line 2: a value is no finite number"),
    ],
)
def test_damaged_files_end_in_one_line(damaged, message, at_a_time, write, monkeypatch):
    monkeypatch.setattr(word_vectors, "_LINES_AT_A_TIME", at_a_time)
    path = write(damaged)
    with pytest.raises(UserError) as error:
        WordVectors.from_file(path)
    assert str(path) in str(error.value) and message in str(error.value) and "\n" not in str(error.value)


def test_files_that_cannot_be_read_end_in_one_line(write, tmp_path):
    with pytest.raises(UserError, match="no file .*none.txt"):
        WordVectors.from_file(tmp_path / "none.txt")
    with pytest.raises(UserError, match="is a folder: give a file"):
        WordVectors.from_file(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match="empty.txt, line 1: `word v1 v2 ...` should stand here"):
        WordVectors.from_file(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes("dog 1 2\ncaf\xe9 3 4\n".encode("latin-1"))
    with pytest.raises(UserError, match="latin.txt, line 2: not UTF-8"):
        WordVectors.from_file(tmp_path / "latin.txt")
    path = write(lines(), "cut.txt.gz")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(UserError, match="cut.txt.gz cannot be read"):
        WordVectors.from_file(path)


@pytest.mark.parametrize(
    ("counted", "message"),
    [
        (["the 5", "dog"], "counts.txt, line 2: no word and its count but 'dog'"),
        (["the 5", "dog many"], "line 2: no word and its count but 'dog many'"),
        (["the -5"], "line 1"),
        (["the nan"], "line 1"),
        (["the 0"], "counts.txt counts no words"),
        ([""], "counts no words"),
    ],
)
def test_damaged_counts_end_in_one_line(counted, message, write):
    with pytest.raises(UserError, match=message):
        WordVectors.from_file(write(lines()), word_counts=write(counted, "counts.txt"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("one string",), "a list of sentences"),
        ((["fine", None],), "sentence 1 is not a string but None"),
        ((["fine"], 0), "batch_size=0"),
    ],
)
def test_encode_says_what_is_wrong(arguments, message, write):
    with pytest.raises(UserError, match=message):
        WordVectors.from_file(write(lines())).encode(*arguments)
