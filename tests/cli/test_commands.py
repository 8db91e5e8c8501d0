"""The commands on files, standard input and standard output."""

import itertools
import json
import re
import subprocess
import sys
from statistics import fmean

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.util.quantization import quantize_embeddings

from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.inference.mining import MiningOptions, mine
from simcse_pl.inference.sentence_index import recall
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import load_encoder
from tests.conftest import ROOT, SENTENCES


@pytest.fixture
def expected(make_model):
    """The unit vectors of SENTENCES."""
    return F.normalize(load_encoder(str(make_model("bert")), "mean").encode(SENTENCES), dim=1)


def read_vectors(path):
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path, allow_pickle=False))
    rows = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_json(path, lines=True)
    assert list(rows.columns) == ["sentence", "vector"] and rows["sentence"].tolist() == SENTENCES
    return torch.tensor(np.stack(rows["vector"])).float()


def printed(done):
    """Return the rows of JSON that a command printed."""
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.jsonl"])
@pytest.mark.parametrize("chunk_size", [2, 4096])
def test_encode_writes_vectors_in_each_format(
    name, chunk_size, set_chunk_size, command, encoder, expected, sentences, tmp_path
):
    set_chunk_size(chunk_size)
    (tmp_path / name).write_text("old content")
    done = command("encode", *encoder, sentences, "--out", tmp_path / name)
    torch.testing.assert_close(read_vectors(tmp_path / name), expected, atol=1e-5, rtol=0)
    assert not done.out and sorted(path.name for path in tmp_path.iterdir()) == sorted([name, sentences.name])


@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.jsonl"])
@pytest.mark.parametrize(("precision", "theirs"), [("int8", "int8"), ("uint8", "uint8"), ("binary", "ubinary")])
def test_encode_writes_quantized_vectors_in_each_format(
    name, precision, theirs, command, encoder, sentences, tmp_path, set_chunk_size
):
    set_chunk_size(5)
    out, ranges = tmp_path / name, tmp_path / f"{name}.ranges.npy"
    simcse = SimCSE(encoder[0], pooling="mean", device="cpu")
    first, last = (simcse.encode(chunk, return_numpy=True) for chunk in (SENTENCES[:5], SENTENCES[5:]))
    expected = quantize_embeddings(np.concatenate([first, last]), theirs, calibration_embeddings=first)
    command("encode", *encoder, sentences, "--out", out, "--precision", precision)
    np.testing.assert_array_equal(read_vectors(out).numpy(), expected)
    if name == "v.npy":
        assert np.load(out).dtype == expected.dtype
    elif name == "v.parquet":
        stored = pyarrow.list_(pyarrow.from_numpy_dtype(expected.dtype), expected.shape[1])
        assert pyarrow.parquet.read_schema(out).field("vector").type == stored
    else:
        assert all(type(value) is int for value in json.loads(out.read_text().splitlines()[0])["vector"])
    if precision == "binary":
        assert not ranges.exists()
        return
    np.testing.assert_array_equal(np.load(ranges), [first.min(axis=0), first.max(axis=0)])
    (tmp_path / "last.txt").write_text("\n".join(SENTENCES[5:]))
    options = ["--precision", precision, "--calibration", tmp_path / "last.txt"]
    command("encode", *encoder, sentences, "--out", out, *options)
    expected = quantize_embeddings(np.concatenate([first, last]), theirs, calibration_embeddings=last)
    np.testing.assert_array_equal(read_vectors(out).numpy(), expected)
    np.testing.assert_array_equal(np.load(ranges), [last.min(axis=0), last.max(axis=0)])


def test_encode_writes_binary_vectors_to_standard_output(command, encoder, expected, sentences):
    rows = printed(command("encode", *encoder, sentences, "--precision", "binary"))
    assert [row["vector"] for row in rows] == np.packbits(expected.numpy() > 0, axis=1).tolist()


def test_encode_reads_standard_input_and_writes_standard_output(command, encoder, expected, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("\n\n".join(SENTENCES))  # blank lines are ignored
    monkeypatch.setattr("sys.stdin", (tmp_path / "in.txt").open(encoding="utf-8"))
    rows = printed(command("encode", *encoder))
    assert [row["sentence"] for row in rows] == SENTENCES
    torch.testing.assert_close(torch.tensor([row["vector"] for row in rows]), expected, atol=1e-5, rtol=0)


def test_encode_takes_a_column_and_keeps_the_lengths_of_vectors(command, encoder, make_model, tmp_path):
    expected = load_encoder(str(make_model("bert")), "mean", max_length=5).encode(SENTENCES)
    rows = [{"id": i, "text": sentence} for i, sentence in enumerate(SENTENCES)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for column in ("text", "1"):
        options = ["--column", column, "--out", tmp_path / "v.npy", "--no-normalize", "--max-length", "5"]
        command("encode", *encoder, tmp_path / "in.jsonl", *options)
        torch.testing.assert_close(read_vectors(tmp_path / "v.npy"), expected, atol=1e-5, rtol=0)


def test_a_closed_pipe_ends_without_an_error(encoder, tmp_path):
    (tmp_path / "in.txt").write_text("a sentence\n" * 20000)
    line = f"{sys.executable} -m simcse_pl encode {' '.join(map(str, encoder))} {tmp_path}/in.txt | head -n 2 | wc -l"
    done = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "2" and "Traceback" not in done.stderr and "Error" not in done.stderr


def test_similarity_of_two_sentences_and_of_pairs(command, encoder, expected, tmp_path):
    cosine = (expected[0] @ expected[1]).item()
    assert float(command("similarity", *encoder, *SENTENCES[:2]).out) == pytest.approx(cosine, abs=1e-4)
    (tmp_path / "pairs.tsv").write_text(f"score\ta\tb\n3\t{SENTENCES[0]}\t{SENTENCES[1]}\n4\tx\tx\n")
    given = ["--pairs", tmp_path / "pairs.tsv", "--columns", "a", "2"]
    first, second = printed(command("similarity", *encoder, *given))
    assert (first["first"], first["second"]) == tuple(SENTENCES[:2])
    assert first["similarity"] == pytest.approx(cosine, abs=1e-5)
    assert second == {"first": "x", "second": "x", "similarity": pytest.approx(1, abs=1e-5)}


def test_an_index_is_built_added_to_and_searched(command, encoder, sentences, tmp_path):
    folder = tmp_path / "index"
    done = command("index", *encoder, sentences, folder)
    assert done.out == f"{len(SENTENCES)} sentences indexed in {folder}\n"
    (tmp_path / "more.txt").write_text(f"{SENTENCES[0]}\nsomething else\n")
    done = command("index", *encoder, tmp_path / "more.txt", folder, status=2)
    assert done.err == f"error: {folder} contains an index: use --add to add to it, or give another directory\n"
    done = command("index", *encoder, tmp_path / "more.txt", folder, "--add")
    assert done.out == f"1 new sentences\n{len(SENTENCES) + 1} sentences indexed in {folder}\n"
    rows = printed(command("search", *encoder, folder, "something else", SENTENCES[3], "--top-k", "1"))
    assert [(row["query"], row["sentence"]) for row in rows] == [(x, x) for x in ("something else", SENTENCES[3])]
    assert all(row["similarity"] == pytest.approx(1, abs=1e-3) for row in rows)


@pytest.mark.parametrize(("precision", "memory"), [("int8", 32), ("uint8", 32), ("binary", 4)])
def test_a_quantized_index_is_built_and_searched(precision, memory, command, encoder, sentences, tmp_path):
    folder = tmp_path / "index"
    out = command("index", *encoder, sentences, folder, "--precision", precision, "--rescore", "2").out
    index, simcse = json.loads((folder / "index.json").read_text()), SimCSE(encoder[0], pooling="mean", device="cpu")
    assert (index["precision"], index["rescore"]) == (precision, 2)
    simcse.build_index(SENTENCES)
    share = recall(simcse.index.quantized(precision, 2), simcse.index)
    assert out.startswith(f"{len(SENTENCES)} sentences indexed in {folder}\n")
    assert re.search(r"float32\W+128\W+1\.0000", out) and re.search(rf"{precision}\W+{memory}\W+{share:.4f}", out)
    rows = printed(command("search", *encoder, folder, "something else", "--top-k", "3"))
    simcse.load_index(folder)
    near = simcse.search("something else", top_k=3, threshold=None)
    assert [(row["sentence"], row["similarity"]) for row in rows] == [(one, round(value, 4)) for one, value in near]


def test_search_reads_corpus_and_queries_from_files(command, encoder, sentences, tmp_path):
    (tmp_path / "queries.txt").write_text(f"{SENTENCES[1]}\nunheard of\n")
    search = ["search", *encoder, sentences, "--queries-from", tmp_path / "queries.txt", "--top-k", "2"]
    rows = printed(command(*search))
    assert [row["query"] for row in rows] == [SENTENCES[1]] * 2 + ["unheard of"] * 2
    assert rows[0]["sentence"] == SENTENCES[1]
    above = printed(command(*search, "--threshold", "0.99"))
    assert above == [row for row in rows if row["similarity"] >= 0.99] != rows


def test_search_prints_a_table_on_a_terminal(command, encoder, sentences, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    out = command("search", *encoder, sentences, SENTENCES[0], "--top-k", "1").out
    assert "Nearest in" in out and "│" in out and "1.0000" in out


def test_mine_adds_columns_of_negatives_that_train_reads(command, encoder, tmp_path):
    out, model = tmp_path / "mined.csv", SentenceEncoder.from_pretrained(encoder[0], "mean")
    found = list(itertools.pairwise(SENTENCES))
    (tmp_path / "pairs.tsv").write_text("".join(f"{first}\t{second}\n" for first, second in found))
    given = ["--negatives", "2", "--skip-top", "1", "--margin", "0.001", "--header", "false"]
    shown = command("mine", *encoder, tmp_path / "pairs.tsv", out, *given).out
    rows, counts = mine(model.encode, found, MiningOptions(negatives=2, skip_top=1, margin=0.001))
    assert 0 < len(rows) < len(found)
    assert read_rows(out, ["anchor", "positive", "negative_1", "negative_2"]) == rows
    assert f"{len(rows)} rows in {out}; {counts.too_few} of {len(found)} pairs had too few negatives" in shown
    assert re.search(rf"--margin\W+{counts.left_out['margin'] / len(found):.1f}\b", shown)
    mean, lowest, highest = (f"{of(counts.negatives):.4f}" for of in (fmean, min, max))
    assert re.search(rf"negatives\W+{mean}\W+{lowest}\W+{highest}\b", shown)


def test_mine_leaves_out_invalid_rows_of_pairs_and_corpus(command, encoder, tmp_path, caplog):
    pairs, corpus, out = (tmp_path / name for name in ("pairs.csv", "corpus.csv", "mined.csv"))
    pairs.write_text(f'a,b\n"{SENTENCES[0]}","{SENTENCES[1]}"\n"{SENTENCES[2]}",\n')
    corpus.write_text(f'a,b\n1,"{SENTENCES[3]}"\n2,\n')
    command("mine", *encoder, pairs, out, "--corpus", corpus, "--corpus-column", "b", "--on-invalid-row", "drop")
    assert read_rows(out) == [(SENTENCES[0], SENTENCES[1], SENTENCES[3])]
    assert [message.partition(", ")[0] for message in caplog.messages] == [
        f"{file}: 1 invalid rows dropped" for file in (pairs, corpus)
    ]


def test_info_describes_transformers_and_word_vectors(command, encoder, make_model, tmp_path):
    about = json.loads(command("info", *encoder, "--json").out)
    backbone = load_encoder(str(make_model("bert")), "mean").backbone
    assert about["parameters"] == sum(p.numel() for p in backbone.parameters())
    assert (about["architecture"], about["pooling"], about["layers"]) == ("BertModel", "mean", 3)
    assert about["template"] == "none"
    assert "BertModel" in command("info", *encoder).out
    (tmp_path / "v.txt").write_text("a 1 2\nb 3 4\n")
    words = json.loads(command("info", tmp_path / "v.txt", "--json").out)
    assert words == {"encoder": f"{tmp_path}/v.txt", "architecture": "word vectors", "dimensions": 2}
