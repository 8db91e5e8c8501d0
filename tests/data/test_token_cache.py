"""The token cache: rows and tokens as they were read, computed once."""

import copy
import multiprocessing
import pickle
import time

import pytest
from tokenizers.normalizers import Lowercase

from simcse_pl.data import token_cache
from simcse_pl.data.documents import with_next_sentence
from simcse_pl.data.rows import ReadOptions, iterate_rows
from simcse_pl.data.token_cache import Tokenize, open_token_cache
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.utils import files
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES

ROWS = [(f"{SENTENCES[i % 7]} {i}", f"butter and flour {'!' * (i + 1)}") for i in range(20)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(token_cache, "_ROWS_A_BLOCK", 6)
    return tmp_path / "cache" / "simcse_pl" / "corpora"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("\n".join("\t".join(row) for row in ROWS), encoding="utf-8")
    return path


def reader(source, calls):
    def read(warn):
        calls.append(source)
        return iterate_rows(source, ReadOptions(header=False), warn=warn)

    return read


def contents(cache):
    return list(cache), [[tokens.tolist() for tokens in cache.tokens(row)] for row in range(len(cache))]


def test_rows_are_read_once_for_each_content_length_and_tokenizer(source, tokenizer, make_model, folder, monkeypatch):
    calls = []
    other, lower = load_tokenizer(str(make_model("roberta"))), copy.deepcopy(tokenizer)
    lower.backend_tokenizer.normalizer = Lowercase()
    cases = [(["x"], tokenizer, 9), (["y"], tokenizer, 9), (["x"], tokenizer, 8), (["x"], other, 9), (["x"], lower, 9)]
    for _ in range(2):
        for key, own, length in cases:
            sent = pickle.dumps(open_token_cache(reader(source, calls), key, Tokenize(own, length)))
            rows, tokens = contents(pickle.loads(sent))  # as in a worker process
            assert len(sent) < 1000
            assert rows == ROWS
            expected = own([sentence for row in ROWS for sentence in row], truncation=True, max_length=length)
            assert [ids for row in tokens for ids in row] == expected["input_ids"]
            own(["a", "b c"], padding=True, truncation=True, max_length=5)  # the last call does not change the key
    assert len(calls) == len(list(folder.iterdir())) == 5
    monkeypatch.setattr(tokenizer, "truncation_side", "left")
    contents(open_token_cache(reader(source, calls), ["x"], Tokenize(tokenizer, 9)))
    assert len(calls) == 6


def open_and_count(source, log, tokenizer, results):
    def read(warn):
        with open(log, "a") as file:
            file.write("read\n")
        time.sleep(0.2)  # the others start
        return iterate_rows(source, ReadOptions(header=False), warn=warn)

    results.put(contents(open_token_cache(read, ["x"], Tokenize(tokenizer, 9))))


def test_of_processes_that_start_together_one_reads(source, tokenizer, tmp_path):
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


def test_a_complete_cache_may_be_read_only_and_a_damaged_file_is_named(source, tokenizer, monkeypatch):
    def opened():
        return open_token_cache(reader(source, []), ["x"], Tokenize(tokenizer, 9))

    written = opened()
    monkeypatch.setattr(files, "FileLock", lambda path: pytest.fail("a read-only file system refuses this"))
    assert contents(opened()) == contents(written)
    content = written.file.read_bytes()
    for damaged in (content[:-20], content[:5], b""):
        written.file.write_bytes(damaged)
        with pytest.raises(UserError, match=f"^{written.file} is damaged: remove its folder"):
            len(opened())


@pytest.mark.parametrize("processes", [2, None])
def test_the_file_does_not_depend_on_the_number_of_processes(source, tokenizer, monkeypatch, processes):
    monkeypatch.setattr(token_cache, "_BLOCKS_ALONE", 1)
    files = []
    for key, count in (("alone", 0), ("several", processes)):
        cache = open_token_cache(reader(source, []), [key], Tokenize(tokenizer, 9), count)
        files.append({path.name: path.read_bytes() for path in cache.file.parent.iterdir()})
    assert files[0] == files[1] and len(cache) == 20


def test_what_is_counted_over_all_rows_is_counted_once(tokenizer, folder):
    def cache(labels, kind):
        rows = [((sentence,), label) for sentence, label in zip(SENTENCES, labels, strict=False)]
        return open_token_cache(lambda warn: iter(rows), [kind], Tokenize(tokenizer, 9, kind))

    scores, documents = cache([0.5, -3.0, 1e-7, 4.999999999, 7.1], "scores"), cache("aabcc", None)
    for _ in range(2):
        assert scores.score_range() == (-3.0, 7.1)
        assert documents.classes() == ["a", "b", "c"]
        assert with_next_sentence(documents).tolist() == [0, 3]
        assert [scores.count({*SENTENCES[:n], "another"}) for n in (0, 3)] == [0, 3]
    assert len(list((folder.parent / "row_counts").iterdir())) == 4
