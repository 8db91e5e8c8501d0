"""The corpus: the rows and tokens that reading and tokenizing give, once, whatever happens to the file."""

import hashlib
import json
import logging
import multiprocessing
import pickle
from functools import partial

import numpy as np
import pyarrow
import pytest

from simcse_pl.data import token_cache as module
from simcse_pl.data.readers.row_reader import iterate_labeled_rows, iterate_rows
from simcse_pl.data.token_cache import Column, open_token_cache
from simcse_pl.models.backbone import load_tokenizer
from simcse_pl.models.tokenization import tokenize
from simcse_pl.utils.errors import UserError, WriteError
from tests.conftest import SENTENCES

ROWS = [(f"{SENTENCES[i % 7]} {i}", f"butter and flour {'!' * (i + 1)}") for i in range(20)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_ROWS_A_BLOCK", 6)
    return tmp_path / "cache" / "simcse_pl" / "corpora"


@pytest.fixture
def tokenizer(make_model):
    return load_tokenizer(str(make_model("bert")))


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("\n".join("\t".join(row) for row in ROWS), encoding="utf-8")
    return path


def reader(source, calls=None, **options):
    def read():
        if calls is not None:
            calls.append(source)
        return iterate_rows(source, header=False, **options)

    return read


def never():
    raise AssertionError("the rows were read again")


def contents(corpus):
    return list(corpus.sentences), [[tokens.tolist() for tokens in row] for row in corpus.tokens]


def test_it_holds_what_was_read_and_what_the_tokenizer_gives(source, tokenizer):
    corpus = open_token_cache(reader(source), ["x"], tokenizer, 9)
    sentences, tokens = contents(corpus)
    assert sentences == ROWS
    assert tokens == [[tokenizer(s, truncation=True, max_length=9)["input_ids"] for s in row] for row in ROWS]
    assert corpus.names is None and len(corpus.tokens) == 20
    assert corpus.sentences[-1] == ROWS[-1] and corpus.sentences[5:14:4] == ROWS[5:14:4]
    with pytest.raises(IndexError):
        corpus.sentences[20]


def test_labels_stand_beside_their_rows(tmp_path, tokenizer):
    (tmp_path / "d.csv").write_text("x,label\n" + "".join(f"a {i},{i % 3}\n" for i in range(10)))
    corpus = open_token_cache(
        partial(iterate_labeled_rows, tmp_path / "d.csv", "label"), ["x"], tokenizer, 9, named=True
    )
    assert list(corpus.names) == [str(i % 3) for i in range(10)]


def test_the_second_start_reads_nothing(source, tokenizer):
    first = contents(open_token_cache(reader(source), ["x"], tokenizer, 9))
    assert contents(open_token_cache(never, ["x"], tokenizer, 9)) == first


def test_other_data_another_length_and_another_tokenizer_are_not_mixed_up(source, tokenizer, make_model, cache):
    calls = []
    other = load_tokenizer(str(make_model("roberta")))
    ways = [(["x"], tokenizer, 9), (["y"], tokenizer, 9), (["x"], tokenizer, 8), (["x"], other, 9)]
    for _ in range(2):
        for described, own, length in ways:
            corpus = open_token_cache(reader(source, calls), described, own, length)
            assert corpus.tokens[3][0].tolist() == own(ROWS[3][0], truncation=True, max_length=length)["input_ids"]
    assert len(calls) == len(list(cache.iterdir())) == 4


def test_how_a_tokenizer_was_last_called_makes_no_difference(source, tokenizer):
    open_token_cache(reader(source), ["x"], tokenizer, 9)
    tokenizer(["a", "b c"], padding=True, truncation=True, max_length=5)
    open_token_cache(never, ["x"], tokenizer, 9)


def cut(folder):
    path = folder / "rows.arrow"
    path.write_bytes(path.read_bytes()[:-100])


def flip(folder):
    path = folder / "rows.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def sealed(folder, rows=None, **changes):
    """Other rows, as the seal says that they should be: what a checksum says nothing of."""
    path = folder / "rows.arrow"
    if isinstance(rows, pyarrow.Table):
        with pyarrow.ipc.new_file(str(path), rows.schema) as file:
            file.write(rows)
    elif rows is not None:
        path.write_bytes(rows)
    seal = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "warnings": []}
    (folder / "seal.json").write_text(json.dumps(seal | changes))


def beyond(folder):
    """Rows of which one ends where the file has long ended."""
    content = (folder / "rows.arrow").read_bytes()
    offsets = np.arange(0, 7, 2, np.int32)  # of the first sentences, two a row
    assert content.count(offsets.tobytes()) > 0
    return content.replace(offsets.tobytes(), np.array([*offsets[:-1], 10**9], np.int32).tobytes())


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        flip,
        lambda folder: (folder / "rows.arrow").unlink(),
        lambda folder: (folder / "seal.json").write_text("{"),
        lambda folder: (folder / "seal.json").write_text("[1]"),
        lambda folder: (folder / "seal.json").write_bytes(b"\xff"),
        lambda folder: (folder / "seal.json").write_text("[" * 100_000),
        lambda folder: sealed(folder, warnings=3),
        lambda folder: sealed(folder, pyarrow.table({"sentences": [["x"]]})),
        lambda folder: sealed(folder, b"no Arrow"),
        lambda folder: sealed(folder, beyond(folder)),
    ],
)
def test_a_damaged_one_is_made_again(damage, source, tokenizer, cache, caplog):
    first = contents(open_token_cache(reader(source), ["x"], tokenizer, 9))
    (folder,) = cache.iterdir()
    damage(folder)
    calls = []
    assert contents(open_token_cache(reader(source, calls), ["x"], tokenizer, 9)) == first
    assert len(calls) == 1
    assert f"the tokens kept in {folder} are damaged, and made again" in caplog.text
    open_token_cache(never, ["x"], tokenizer, 9)


def test_rows_without_a_seal_were_never_whole(source, tokenizer, cache):
    first = contents(open_token_cache(reader(source), ["x"], tokenizer, 9))
    (folder,) = cache.iterdir()
    (folder / "seal.json").unlink()
    calls = []
    assert contents(open_token_cache(reader(source, calls), ["x"], tokenizer, 9)) == first
    assert len(calls) == 1


def test_a_bad_row_leaves_nothing_behind(tmp_path, tokenizer, cache):
    path = tmp_path / "rows.tsv"
    path.write_text("\n".join(f"a {i}\tb" for i in range(15)) + "\nalone\n")
    for _ in range(2):
        with pytest.raises(UserError, match="line 16: 1 columns where there should be 2"):
            open_token_cache(reader(path), ["x"], tokenizer, 9)
        (folder,) = cache.iterdir()
        assert [file.name for file in folder.iterdir()] == ["lock"]


def test_what_the_reader_warned_of_is_told_at_every_start(tmp_path, tokenizer, caplog):
    path = tmp_path / "rows.tsv"
    path.write_text("a\tb\nalone\nc\td\n")
    for read in (reader(path, on_invalid_row="drop"), never):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            open_token_cache(read, ["x"], tokenizer, 9)
        assert [record.getMessage() for record in caplog.records] == [
            f"{path}: 1 bad rows dropped, the first at line 2: 1 columns where there should be 2"
        ]


def test_a_cache_that_cannot_be_written_is_told_in_one_line(source, tokenizer, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        WriteError, match="cannot write tokens to .*file.*: Not a directory; XDG_CACHE_HOME takes another"
    ) as error:
        open_token_cache(reader(source), ["x"], tokenizer, 9)
    assert "\n" not in str(error.value)


def open_and_count(source, log, tokenizer, results):
    def read():
        with open(log, "a") as file:
            file.write("read\n")
        return iterate_rows(source, header=False)

    results.put(contents(open_token_cache(read, ["x"], tokenizer, 9)))


def test_processes_that_start_at_once_read_it_once(source, tokenizer, tmp_path):
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    arguments = (source, tmp_path / "log", tokenizer, results)
    processes = [fork.Process(target=open_and_count, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    opened = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert (tmp_path / "log").read_text() == "read\n"
    assert all(each == opened[0] for each in opened) and opened[0][0] == ROWS


def test_a_column_travels_to_another_process(source, tokenizer):
    corpus = open_token_cache(reader(source), ["x"], tokenizer, 9)
    list(corpus.tokens)
    copy = pickle.loads(pickle.dumps(corpus.tokens))
    assert isinstance(copy, Column) and len(pickle.dumps(corpus.tokens)) < 1000
    assert [list(map(list, row)) for row in copy] == [list(map(list, row)) for row in corpus.tokens]


def test_a_large_vocabulary_keeps_its_ids(source, tokenizer):
    tokenizer.add_tokens([f"w{i}" for i in range(2**16)])
    source.write_text("w65000\tw65535\n")
    corpus = open_token_cache(reader(source), ["x"], tokenizer, 9)
    assert contents(corpus)[1] == [[tokenizer(word)["input_ids"] for word in ("w65000", "w65535")]]
    assert corpus.tokens[0][1].dtype == np.int32 and corpus.tokens[0][1].max() >= 2**16


def test_no_sentences_have_no_tokens(tokenizer):
    assert tokenize(tokenizer, [], 9) == []


def test_sentences_that_are_cut_are_told_at_every_start(source, tokenizer, caplog):
    """Once a start, though the second one reads no sentence."""
    lengths = [len(ids) for ids in tokenize(tokenizer, [sentence for row in ROWS for sentence in row], 1000)]
    share = sum(length >= 9 for length in lengths) / len(lengths)
    assert 0 < share < 1
    for read in (reader(source), never):
        caplog.clear()
        open_token_cache(read, ["x"], tokenizer, 9)
        assert caplog.messages == [
            f"{share:.2%} of the sentences fill data.max_length=9 tokens; what is beyond is not read"
        ]
    caplog.clear()
    open_token_cache(reader(source), ["x"], tokenizer, 1000)
    assert caplog.messages == []


def test_sentences_among_others_are_counted(source, tokenizer):
    corpus = open_token_cache(reader(source), ["x"], tokenizer, 9)
    sentences = [sentence for row in ROWS for sentence in row]
    wanted = {sentences[0], sentences[-1], "butter and flour !", "unheard of"}
    assert corpus.count(wanted) == sum(sentence in wanted for sentence in sentences) > 2
    assert corpus.count(set()) == 0
