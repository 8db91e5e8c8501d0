"""`simcse search`, `index` and `similarity` on files, standard input and standard output."""

import json

import pytest
import torch.nn.functional as F

from simcse_pl.models.encoder import SentenceEncoder
from tests.conftest import SENTENCES


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
