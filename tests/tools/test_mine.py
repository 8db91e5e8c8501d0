"""Mined negatives against loops over pairs and candidates, ties, and the command."""

import csv
import itertools
import math
from collections import Counter

import pytest
import torch

from simcse_pl.data.rows import read_rows
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.tools import mine as mining
from simcse_pl.tools.conversion import ConversionStats, write_csv
from simcse_pl.tools.language_models import CrossEncoder, rescore
from simcse_pl.tools.mine import MiningOptions, mine
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.support.helpers import random_vectors
from tests.support.pretend_device import DEVICE, Pretend

WORDS = [f"word{number}" for number in range(40)]
PLACES = *((number, 20 + number // 2) for number in range(12)), (0, 30), (25, 3)
PAIRS = [(WORDS[first], WORDS[second]) for first, second in PLACES]


def encode(sentences):
    """Return vectors that depend on the sentence alone, of any length."""
    return random_vectors(sentences) * 3


def cosine(first, second):
    a, b = encode([first])[0].tolist(), encode([second])[0].tolist()
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return round(dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b)), 6)


def by_loops(options, corpus):
    """Return the rows, and how many candidates each option leaves out."""
    rows, left_out = [], Counter()
    for anchor, positive in PAIRS:
        forbidden = {anchor, *(one for pair in PAIRS if anchor in pair for one in pair)}
        near = sorted((-cosine(anchor, one), place) for place, one in enumerate(corpus))
        near = near[: options.nearest] if options.faiss else near
        near = [one for one in near if corpus[one[1]] not in forbidden]
        own = cosine(anchor, positive)
        left_out["skip_top"] += min(options.skip_top, len(near))
        kept = []
        for negated, place in near[options.skip_top :]:
            reasons = {
                "margin": options.margin is not None and -negated > own - options.margin,
                "relative_margin": options.relative_margin is not None
                and -negated > own - options.relative_margin * abs(own),
                "max_similarity": options.max_similarity is not None and -negated > options.max_similarity,
                "min_similarity": options.min_similarity is not None and -negated < options.min_similarity,
            }
            if first := next((name for name, out in reasons.items() if out), None):
                left_out[first] += 1
            else:
                kept.append(corpus[place])
        if len(kept) >= options.negatives:
            rows.append((anchor, positive, *kept[: options.candidates or options.negatives]))
    return rows, left_out


@pytest.mark.parametrize("chunk", [20, 1 << 24])
@pytest.mark.parametrize(
    "options",
    [
        {"negatives": 3},
        {"negatives": 2, "skip_top": 2},
        {"negatives": 2, "margin": 0.1},
        {"negatives": 2, "margin": 0.1, "candidates": 4},
        {"negatives": 2, "relative_margin": 0.2, "min_similarity": -0.5},
        {"skip_top": 1, "margin": 0.0, "relative_margin": 0.1, "max_similarity": 0.6, "min_similarity": 0.0},
    ],
)
@pytest.mark.parametrize("corpus", [None, WORDS[5:35]])
@pytest.mark.parametrize("found", [{}, {"nearest": 7, "faiss": "IVF2,Flat:nprobe=2"}])
def test_negatives_are_those_of_loops(options, corpus, found, chunk, monkeypatch):
    monkeypatch.setattr(mining, "_MAX_SIMILARITIES", chunk)
    options = MiningOptions(**options, **found)
    expected, left_out = by_loops(options, corpus or list(dict.fromkeys(positive for _, positive in PAIRS)))
    rows, counts = mine(encode, PAIRS, options, corpus)
    assert rows == expected and +counts == +left_out


@pytest.mark.parametrize("faiss", [None, "HNSW32"])
def test_a_device_mines_the_same(faiss):
    options = MiningOptions(negatives=2, skip_top=1, relative_margin=0.2, faiss=faiss)
    with Pretend():
        assert mine(encode, PAIRS, options, WORDS, DEVICE) == mine(encode, PAIRS, options, WORDS)


def test_an_index_that_faiss_does_not_know_is_an_error():
    with pytest.raises(UserError, match="faiss=IVX.* faiss-cpu: "):
        mine(encode, PAIRS, MiningOptions(faiss="IVX"), WORDS)


def test_a_candidate_at_the_margin_is_kept():
    angles = {"anchor": 1.0, "positive": 0.3, "near": 0.2}
    encode = lambda texts: torch.tensor([[angles[text], math.sqrt(1 - angles[text] ** 2)] for text in texts])  # noqa: E731
    rows, _ = mine(encode, [("anchor", "positive")], MiningOptions(margin=0.1), ["near"])
    assert rows == [("anchor", "positive", "near")]


def test_a_random_choice_takes_each_remaining_candidate_equally_often_and_repeats(monkeypatch):
    corpus, options = WORDS[20:24], {"choice": "random", "max_similarity": 1.0}
    pairs = [(f"word{100 + number}", WORDS[20]) for number in range(900)]
    rows, _ = mine(encode, pairs, MiningOptions(**options), corpus)
    taken = Counter(row[2] for row in rows)
    assert taken.keys() == set(corpus[1:]) and all(abs(count - 300) < 5 * math.sqrt(200) for count in taken.values())
    monkeypatch.setattr(mining, "_MAX_SIMILARITIES", 1)
    assert mine(encode, pairs, MiningOptions(**options), corpus)[0] == rows
    assert mine(encode, pairs, MiningOptions(**options, seed=7), corpus)[0] != rows


def test_anchors_have_vectors_of_their_own():
    """Of opposite anchors, the negatives are the farthest sentences."""
    options, corpus = MiningOptions(negatives=2), WORDS[20:]
    mined, _ = mine(encode, PAIRS[:3], options, corpus, encode_anchors=lambda sentences: -encode(sentences))
    for (anchor, positive), row in zip(PAIRS[:3], mined, strict=True):
        others = [word for word in corpus if word not in {p for a, p in PAIRS[:3] if a == anchor}]
        assert row == (anchor, positive, *sorted(others, key=lambda word: cosine(anchor, word))[:2])


def test_vectors_must_be_finite():
    with pytest.raises(UserError, match="not finite"):
        mine(encode, PAIRS, MiningOptions(), encode_anchors=lambda texts: encode(texts) * math.inf)


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


def test_a_carriage_return_is_written_as_a_space(tmp_path):
    write_csv(tmp_path / "rows.csv", ["a"], [["one\rtwo"]], ConversionStats())
    assert read_rows(tmp_path / "rows.csv", ["a"]) == [("one two",)]


def test_mine_takes_no_ids_for_anchors(command, encoder, tmp_path):
    rows = "".join(f"Q{i:03},question {i} here,answer {i} there\n" for i in range(200))
    (tmp_path / "pairs.csv").write_text(f"id,question,answer\n{rows}")
    given = "mine", *encoder, tmp_path / "pairs.csv", tmp_path / "out.csv"
    message = "column id has ids, not sentences: name those of sentences by --columns NAME NAME\n"
    assert message in command(*given, status=2).err
    given = *given, "--columns", "question", "answer"
    message = command(*given, "--corpus", tmp_path / "pairs.csv", status=2).err
    assert message.startswith("error: --corpus, --corpus-column: column=NAME: ") and "choose the one with" in message
    assert "error: --max-length 9999: " in command(*given, "--max-length", "9999", status=2).err
    assert "--nearest: it needs --faiss" in command(*given, "--nearest", "5", status=2).err
    command(*given)


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
