"""Word vectors: words, averages (numpy), damaged files."""

import gzip

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from simcse_pl.models.load import load_encoder
from simcse_pl.models.word_vectors import WordVectors, split_words
from simcse_pl.utils.errors import UserError

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


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("A dog runs.", "A dog runs ."),
        ("He doesn't; she WON'T (what?!)", "He does n't ; she WO N'T ( what ? ! )"),
        ("It’s John's, we’ve “seen” it", "It 's John 's , we 've \" seen \" it"),
        ("the U.S. and e.g. 3.14 or 1,000,000 at 10:30", "the U.S. and e.g. 3.14 or 1,000,000 at 10:30"),
        ("a mother-in-law, a 2.5-hour film -- well...", "a mother-in-law , a 2.5-hour film -- well ..."),
        ("naïve Σίσυφος\u0085日本語\xa0x\ty\n", "naïve Σίσυφος 日本語 x y"),
    ],
)
def test_a_sentence_is_split_into_words(sentence, words):
    assert split_words(sentence) == words.split()


def test_a_vector_is_the_mean_of_its_words_in_any_batch(write):
    vectors = WordVectors.from_file(write(lines()))
    sentences = ["The dog doesn't run.", "", "Dog dog", "unheard of", "RUNS the the"]  # none known: zeros
    words = [["the", "dog", "n't", "."], [], ["Dog", "dog"], [], ["runs", "the", "the"]]
    expected = torch.tensor([np.mean([WORDS[w] for w in own] or [[0] * 3], axis=0).tolist() for own in words])
    for batch_size in (None, 1, 2):
        found = vectors.encode(sentences, batch_size=batch_size, progress=True)
        torch.testing.assert_close(found, expected)
    normalized = WordVectors.from_file(write(lines()), normalize=True)
    torch.testing.assert_close(normalized.encode(sentences), F.normalize(expected, dim=-1))
    assert vectors.encode([]).shape == (0, vectors.dim) == (0, 3)
    torch.testing.assert_close(load_encoder(str(write(lines())), truncate_dim=2).encode(sentences), expected[:, :2])
    with pytest.raises(UserError, match="^truncate_dim=4: the vectors of .* have 3 dimensions"):
        load_encoder(str(write(lines())), truncate_dim=4)


@pytest.mark.parametrize("tab", [0, 1, -1], ids=["spaces", "a tab", "tabs"])
@pytest.mark.parametrize(("name", "end"), [("v.txt.gz", "\n"), ("v.txt", " \n"), ("v.txt", "\r\n")])
@pytest.mark.parametrize("header", [[], [f"{len(WORDS)} 3"]], ids=["GloVe's", "word2vec's"])
def test_all_forms_of_files_are_read(header, name, end, tab, write):
    written = [line.replace(" ", "\t", tab) for line in [*header, *lines()]]
    vectors = WordVectors.from_file(write(written, name, end))
    assert list(vectors.rows) == list(WORDS)
    np.testing.assert_array_equal(vectors.vectors.numpy(), np.array(list(WORDS.values()), dtype=np.float32))


def test_words_with_spaces_and_odd_characters_are_words_and_the_first_of_two_counts(write):
    words = ["the", ". . .", "at name@domain.com", "\u0085", "\xa0", '"']
    vectors = WordVectors.from_file(write([f"{word} {row} {-row}" for row, word in enumerate([*words, "the"])]))
    assert vectors.rows == {word: row for row, word in enumerate(words)}
    assert vectors.vectors.tolist() == [[row, -row] for row in range(7)]


def test_the_first_line_of_word2vec_has_the_width(write):
    vectors = WordVectors.from_file(write(["2 3", "new york 1 2 3", "cat 4 5 6"]))
    assert vectors.rows == {"new york": 0, "cat": 1} and vectors.vectors.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "damaged",
    [
        ["2 4", "dog 1 2 3", "cat 1 2 3"],
        ["dog 1 2 3", "cat 1 2 3", "cow 1 2 x"],
        ["dog 1 2 3", "cat 1 2"],
        ["3 3", "dog 1 2 3", "cat 1 2 3"],  # cut short
        ["A sentence of text.", "And one more."],
    ],
)
def test_a_damaged_file_is_one_line(damaged, write):
    path = write(damaged)
    with pytest.raises(UserError, match=f"^{path}") as error:
        WordVectors.from_file(path)
    assert "\n" not in str(error.value)
