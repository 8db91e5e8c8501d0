"""The commands on files, standard input and standard output."""

import csv
import itertools
import json
import subprocess
import sys

import pytest
import torch.nn.functional as F

from simcse_pl.data.rows import read_rows
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.tools.cross_encoder import CrossEncoder, rescore
from simcse_pl.tools.mine import MiningOptions, mine
from tests.conftest import ROOT, SENTENCES


def printed(done):
    """Return the rows of JSON that a command printed."""
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_closed_pipe_ends_without_an_error(encoder, tmp_path):
    (tmp_path / "in.txt").write_text("a sentence\n" * 20000)
    line = f"{sys.executable} -m simcse_pl encode {' '.join(map(str, encoder))} {tmp_path}/in.txt | head -n 2 | wc -l"
    done = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "2" and "Traceback" not in done.stderr and "Error" not in done.stderr


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
    done = command("index", *encoder, sentences, folder)
    assert done.out == f"{len(SENTENCES)} sentences indexed in {folder}\n"
    (tmp_path / "more.txt").write_text(f"{SENTENCES[0]}\nsomething else\n")
    assert "use --add" in command("index", *encoder, tmp_path / "more.txt", folder, status=2).err
    done = command("index", *encoder, tmp_path / "more.txt", folder, "--add")
    assert done.out == f"1 new sentences\n{len(SENTENCES) + 1} sentences indexed in {folder}\n"
    rows = printed(command("search", *encoder, folder, "something else", SENTENCES[3], "--top-k", "1"))
    assert [(row["query"], row["sentence"]) for row in rows] == [(x, x) for x in ("something else", SENTENCES[3])]
    assert [row["similarity"] for row in rows] == pytest.approx([1, 1], abs=1e-5)


def test_search_prints_plain_lines_on_a_terminal(command, encoder, sentences, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    out = command("search", *encoder, sentences, SENTENCES[0], "--top-k", "1").out
    assert out == f"{SENTENCES[0]}\n  1.0000  {SENTENCES[0]}\n"


def test_mine_adds_columns_of_negatives_that_train_reads(command, encoder, tmp_path):
    out, model = tmp_path / "mined.csv", SentenceEncoder.from_pretrained(encoder[0], "mean")
    pairs = list(itertools.pairwise(SENTENCES))
    (tmp_path / "pairs.tsv").write_text("".join(f"{first}\t{second}\n" for first, second in pairs))
    given = ["--negatives", "2", "--skip-top", "1", "--margin", "0.001", "--header", "false"]
    shown = command("mine", *encoder, tmp_path / "pairs.tsv", out, *given).out
    rows, counts = mine(model.encode, pairs, MiningOptions(negatives=2, skip_top=1, margin=0.001))
    assert 0 < len(rows) < len(pairs)
    assert read_rows(out, ["anchor", "positive", "negative_1", "negative_2"]) == rows
    assert f"{len(rows)} rows in {out}; {len(pairs) - len(rows)} pairs had too few negatives" in shown
    assert f"--margin left out {counts['margin'] / len(pairs):.1f} sentences per pair" in shown


def test_mine_writes_the_scores_of_a_cross_encoder(command, encoder, cross_encoder, tmp_path):
    out = tmp_path / "mined.csv"
    pairs = list(itertools.pairwise(SENTENCES))
    (tmp_path / "pairs.tsv").write_text("".join(f"{first}\t{second}\n" for first, second in pairs))
    given = ["--negatives", "2", "--header", "false", "--rescore", cross_encoder, "--candidates", "6"]
    shown = command("mine", *encoder, tmp_path / "pairs.tsv", out, *given).out
    mined, _ = mine(SentenceEncoder.from_pretrained(encoder[0], "mean").encode, pairs, MiningOptions(2, candidates=6))
    expected, left_out = rescore(CrossEncoder(str(cross_encoder)).score, mined, 2)
    header, *rows = csv.reader(out.open())
    assert header[2:] == ["negative_1", "negative_2", "positive_score", "negative_1_score", "negative_2_score"]
    assert 0 < len(rows) < len(pairs) and [row[:4] for row in rows] == [[*row[:4]] for row in expected]
    assert [[*map(float, row[4:])] for row in rows] == [pytest.approx([*map(float, row[4:])]) for row in expected]
    assert f"--rescore left out {left_out / len(pairs):.1f} sentences per pair" in shown
