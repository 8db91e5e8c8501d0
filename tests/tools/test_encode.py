"""`simcse encode`, `search`, `index` and `similarity` on files and pipes, and after an interruption."""

import json
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch.nn.functional as F
from filelock import FileLock

from simcse_pl.data.sources import content_hash
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.tools.encode import _join
from simcse_pl.tools.simcse import SimCSE
from tests.conftest import SENTENCES, environment
from tests.support.helpers import flip_bit


@pytest.fixture
def vectors(make_model):
    """The vectors of SENTENCES in chunks of three."""
    simcse = SimCSE(make_model("bert"), pooling="mean", device="cpu")
    chunks = [SENTENCES[start : start + 3] for start in range(0, len(SENTENCES), 3)]
    return np.concatenate([simcse.encode(chunk, return_numpy=True) for chunk in chunks])


def test_encode_writes_the_vectors_of_all_chunks(command, encoder, sentences, vectors, monkeypatch, tmp_path):
    monkeypatch.setattr("simcse_pl.tools.encode.CHUNK_SIZE", 3)
    (tmp_path / "v.npy").write_text("old content")
    command("encode", *encoder, sentences, "--out", tmp_path / "v.npy")
    written = np.load(tmp_path / "v.npy", allow_pickle=False)
    assert written.dtype == np.float32
    np.testing.assert_array_equal(written, vectors)
    assert {path.name for path in tmp_path.iterdir()} == {"v.npy", sentences.name}


def test_encode_reads_standard_input_and_writes_standard_output(command, encoder, vectors, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("\n\n".join(SENTENCES))  # blank lines are ignored
    monkeypatch.setattr("sys.stdin", (tmp_path / "in.txt").open(encoding="utf-8"))
    rows = [json.loads(line) for line in command("encode", *encoder).out.splitlines()]
    assert [row["sentence"] for row in rows] == SENTENCES
    np.testing.assert_allclose([row["vector"] for row in rows], vectors, atol=1e-6)


def test_encode_takes_a_column_and_keeps_the_lengths_of_vectors(command, encoder, make_model, tmp_path):
    simcse = SimCSE(make_model("bert"), pooling="mean", device="cpu", max_length=5)
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps({"id": i, "text": x}) for i, x in enumerate(SENTENCES)))
    options = ["--column", "text", "--out", tmp_path / "v.npy", "--no-normalize", "--max-length", "5"]
    command("encode", *encoder, tmp_path / "in.jsonl", *options)
    expected = simcse.encode(SENTENCES, normalize_to_unit=False, return_numpy=True)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-6)


def test_a_command_that_is_killed_continues(encoder, sentences, forks_of_session, tmp_path):
    """It is killed when it begins to rename a shard and the joined file, and when it has renamed the joined file."""

    def run(out, owner, name, n):
        given = ["-m", "simcse_pl", "encode", *encoder, sentences, "--out", tmp_path / out]
        fault = ["kill_encoding", 2, owner, name, n]
        done = forks_of_session.run(*given, environment=environment(OMP_NUM_THREADS="1"), fault=fault)
        assert done.returncode == (-9 if n else 0), done.stderr
        return {path: path.stat().st_ino for path in (tmp_path / f"{out}.shards").glob("0*.npz")}

    assert run("whole.npy", "os", "replace", 0) == {}
    before = run("v.npy", "os", "replace", 4)  # the manifest is renamed first
    assert len(before) == 2
    after = run("v.npy", "os", "replace", 3)
    assert len(after) == 4 and before.items() <= after.items() and not (tmp_path / "v.npy").exists()
    assert run("v.npy", "shutil", "rmtree", 1) == after and (tmp_path / "v.npy").exists()
    assert run("v.npy", "os", "replace", 0) == {}
    assert (tmp_path / "v.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.slow
def test_ranks_of_torchrun_write_the_same_bytes_as_one_process(command, encoder, run_command, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"sentence {number}\n" for number in range(1100)))  # two shards
    encode = ["encode", *encoder, tmp_path / "in.txt", "--batch-size", "512", "--out"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "simcse_pl"]
    run_command(*torchrun, *encode, tmp_path / "two.npy", OMP_NUM_THREADS="1")
    run_command("-m", "simcse_pl", *encode, tmp_path / "one.npy", OMP_NUM_THREADS="1")
    assert (tmp_path / "two.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "one.npy", "two.npy"}


def interrupt(*_):
    raise KeyboardInterrupt


def test_another_file_or_encoder_and_a_damaged_shard_are_errors_and_keep_the_shards(
    command, encoder, sentences, make_model, monkeypatch, tmp_path
):
    monkeypatch.setattr("simcse_pl.tools.encode.CHUNK_SIZE", 3)
    given = ["encode", *encoder, sentences, "--out", tmp_path / "v.npy"]
    with monkeypatch.context() as patch:
        patch.setattr("simcse_pl.tools.encode._join", lambda *_: None)
        command(*given)
    text, folder = sentences.read_text(), tmp_path / "v.npy.shards"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("simcse_pl.tools.encode.shutil", SimpleNamespace(rmtree=interrupt))
        with pytest.raises(KeyboardInterrupt):
            _join(folder, tmp_path / "v.npy")
    assert {path.name for path in folder.iterdir()} == {".lock", "manifest.json"}  # which goes last
    for path, content in before.items():
        path.write_bytes(content)
    sentences.write_text(text.replace("dogs", "cats"))
    line = f"{folder} has vectors of another file, encoder or option: continue"
    assert line in command(*given, status=2).err
    sentences.write_text(text)
    for changed in (["--max-length", "5"], ["--bf16"], ["--no-normalize"], ["--truncate-dim", "8"]):
        assert line in command(*given, *changed, status=2).err
    given[1] = make_model("bert", num_hidden_layers=2)
    assert line in command(*given, status=2).err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    given[1], shard = encoder[0], folder / "000001.npz"
    flip_bit(shard)
    assert f"{shard} is damaged: remove it, and run the command again" in command(*given, status=2).err
    shard.unlink()
    with monkeypatch.context() as patch:  # the file changes after it was hashed first
        hashes = iter([content_hash(sentences), "another"])
        patch.setattr("simcse_pl.tools.encode.content_hash", lambda _: next(hashes))
        assert f"has changed while it was read: remove {folder}" in command(*given, status=2).err
    command(*given)


def test_a_closed_pipe_ends_without_an_error(encoder, run_command, tmp_path):
    (tmp_path / "in.txt").write_text("a sentence\n" * 20000)
    code = """import os, subprocess
head = subprocess.Popen(["head", "-n", "2"], stdin=subprocess.PIPE)
os.dup2(head.stdin.fileno(), 1)
head.stdin.close()
from simcse_pl.__main__ import main
main()"""
    done = run_command("-c", code, "encode", *encoder, tmp_path / "in.txt", status=141)
    assert done.stdout.count("\n") == 2 and not done.stderr


def printed(done):
    """Return the rows of JSON that a command printed."""
    return [json.loads(line) for line in done.out.splitlines()]


def test_similarity_of_two_sentences_and_of_pairs(command, encoder, tmp_path):
    vectors = SentenceEncoder.from_pretrained(encoder[0], "mean").encode(SENTENCES[:2])
    cosine = F.cosine_similarity(*vectors, dim=0).item()
    assert float(command("similarity", *encoder, *SENTENCES[:2]).out) == pytest.approx(cosine, abs=1e-4)
    (tmp_path / "pairs.tsv").write_text(f"score\ta\tb\n3\t{SENTENCES[0]}\t{SENTENCES[1]}\n4\tx\tx\n")
    given = ["--pairs", tmp_path / "pairs.tsv", "--columns", "a", "2"]
    first, second = printed(command("similarity", *encoder, *given))
    assert (first["first"], first["second"]) == tuple(SENTENCES[:2])
    assert first["similarity"] == pytest.approx(cosine, abs=1e-5)
    assert second == {"first": "x", "second": "x", "similarity": pytest.approx(1, abs=1e-5)}


def test_an_index_is_built_added_to_and_searched(command, encoder, sentences, tmp_path):
    folder = tmp_path / "index"
    (folder / ".saving-x").mkdir(parents=True)  # of a killed process
    done = command("index", *encoder, sentences, folder)
    files = ".lock", "ids.json", "index.json", "sentences.json", "vectors.safetensors"
    assert sorted(path.name for path in folder.iterdir()) == [*files]
    assert done.out == f"{len(SENTENCES)} sentences indexed in {folder}\n"
    (tmp_path / "more.txt").write_text(f"{SENTENCES[0]}\nsomething else\n")
    assert "use --add" in command("index", *encoder, tmp_path / "more.txt", folder, status=2).err
    done = command("index", *encoder, tmp_path / "more.txt", folder, "--add")
    assert done.out == f"1 new sentences\n{len(SENTENCES) + 1} sentences indexed in {folder}\n"
    vectors = tmp_path / "vectors.npy"
    (tmp_path / "vectors.npy.shards").mkdir()
    with FileLock(folder / ".lock"), FileLock(tmp_path / "vectors.npy.shards/.lock"):
        for name, *where in (("index", folder, "--add"), ("encode", "--out", vectors)):
            assert "another command is writing to it" in command(name, *encoder, sentences, *where, status=2).err
    rows = printed(command("search", *encoder, folder, "something else", SENTENCES[3], "--top-k", "1"))
    assert [(row["query"], row["sentence"]) for row in rows] == [(x, x) for x in ("something else", SENTENCES[3])]
    assert [row["similarity"] for row in rows] == pytest.approx([1, 1], abs=1e-5)


def test_sentences_are_added_with_the_prompt_of_the_index(command, make_model, sentences, tmp_path):
    prompts = {"document": "a ", "other": "dogs "}
    SentenceEncoder.from_pretrained(make_model("bert"), "mean", prompts=prompts).save_pretrained(tmp_path / "encoder")
    given = ["index", tmp_path / "encoder", sentences, tmp_path / "index", "--device", "cpu"]
    command(*given)
    command(*given, "--add", "--prompt-name", "document")
    for name in ("other", "missing"):
        done = command(*given, "--add", "--prompt-name", name, status=2)
        assert f"--prompt-name {name}: the prompt of {tmp_path}/index is document: leave it out" in done.err


def test_a_search_prints_the_id_of_the_first_row_and_the_number_of_a_row_without_ids(
    command, encoder, tmp_path, caplog
):
    """An added file has its own numbers."""
    table, more, folder = tmp_path / "table.csv", tmp_path / "more.csv", tmp_path / "index"
    table.write_text("id,text,note\n" + "".join(f"kb-{i},{text},x\n" for i, text in enumerate(SENTENCES[:2] * 2)))
    more.write_text(f"text,note\nnew,x\n{SENTENCES[1]},x\n{SENTENCES[2]},x\n")

    def found(corpus, *options):
        rows = printed(command("search", *encoder, corpus, *SENTENCES[:3], "--top-k", 1, *options))
        return [row["id"] for row in rows]

    assert found(table, "--column", "text")[:2] == [0, 1]
    assert "--column" in command("index", *encoder, table, folder, "--id", "id", status=2).err
    command("index", *encoder, table, folder, "--column", "text", "--id", "id")
    command("index", *encoder, more, folder, "--column", "text", "--add")
    assert found(folder) == ["kb-0", "kb-1", 2]
    other = tmp_path / "other.csv"
    other.write_text("text,note\na,x\nb,x\nc,x\n")
    command("index", *encoder, other, folder, "--column", "text", "--add")
    assert "the numbers of rows are the ids of several files: name a column of ids by --id" in caplog.text


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_an_id_is_the_text_of_its_cell(ending, command, encoder, tmp_path):
    table = tmp_path / f"table.{ending}"
    ids = {"csv": ["1.0", "2.00", "Neutral", "蕴含", "-"], "jsonl": ["1.0", 2, 3.0, "蕴含", "-"]}[ending]
    frame = pandas.DataFrame({"key": pandas.Series(ids, dtype=object), "text": SENTENCES[:5]})
    frame.to_csv(table, index=False) if ending == "csv" else frame.to_json(table, orient="records", lines=True)
    given = ["--column", "text", "--id", "key", "--top-k", 1]
    rows = printed(command("search", *encoder, table, *SENTENCES[:5], *given))
    assert [row["id"] for row in rows] == [str(one) for one in ids]


def test_an_index_takes_the_vectors_of_encode_but_not_those_of_other_sentences(command, encoder, tmp_path):
    """Their lengths do not matter. Of both files, one sentence stands there twice."""
    files = [tmp_path / "first.txt", tmp_path / "more.txt"]
    for file, texts in zip(files, ([*SENTENCES[:3], SENTENCES[0]], SENTENCES[2:]), strict=True):
        file.write_text("\n".join(texts))
        command("encode", *encoder, file, "--no-normalize", "--out", file.with_suffix(".npy"))
    given, computed = ([encoder[0], files[0], tmp_path / name, *encoder[1:]] for name in ("given", "computed"))
    line = "error: vectors: 6 of 4 sentences: give those of `encode` for this file"
    assert line in command("index", *given, "--vectors", tmp_path / "more.npy", status=2).err
    command("index", *given, "--vectors", tmp_path / "first.npy")
    command("index", *computed)
    given[1] = computed[1] = files[1]
    np.save(tmp_path / "turned.npy", np.load(tmp_path / "more.npy")[::-1])
    for wrong in ("turned.npy", "missing.npy"):
        assert "vectors" in command("index", *given, "--add", "--vectors", tmp_path / wrong, status=2).err
    done = command("index", *given, "--add", "--vectors", tmp_path / "more.npy")
    assert done.out == command("index", *computed, "--add").out.replace("computed", "given")
    indexes = [SimCSE(encoder[0], pooling="mean", device="cpu") for _ in range(2)]
    for simcse, folder in zip(indexes, ("given", "computed"), strict=True):
        simcse.load_index(tmp_path / folder)
    assert indexes[0].index.sentences == indexes[1].index.sentences == SENTENCES
    np.testing.assert_allclose(indexes[0].index.vectors, indexes[1].index.vectors, atol=1e-6)


def test_search_prints_plain_lines_on_a_terminal(command, encoder, sentences, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    out = command("search", *encoder, sentences, SENTENCES[0], "--top-k", "1").out
    assert out == f"{SENTENCES[0]}\n  1.0000  0  {SENTENCES[0]}\n"
