"""Rows from SNLI, MultiNLI and ANLI, compared with pandas, and files of each format."""

import csv
import json
import random

import pandas as pd
import pytest

from simcse_pl.data.prepare import nli
from simcse_pl.data.prepare.conversion import INVALID, REPEATED, USED
from simcse_pl.data.prepare.nli import KINDS, LABELS, convert
from simcse_pl.data.readers.row_reader import iterate_rows, read_rows
from simcse_pl.utils.errors import UserError

HORSE, BOAT = "A man rides a horse.", "Two women row a boat."
PAIRS = [
    (HORSE, "A man is asleep.", "contradiction"),
    (HORSE, "A man rides.", "entailment"),
    (HORSE, "He is late.", "neutral"),
    (BOAT, "They are on the water.", "entailment"),
    (BOAT, "They are sisters.", "neutral"),
    (HORSE, "Nobody is outside.", "contradiction"),
    (HORSE, "An animal carries a man.", "entailment"),
    (BOAT, "The boat is empty.", "-"),
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def snli(path, pairs):
    own = [{"annotator_labels": [label], "gold_label": label, "pairID": "1.jpg#0r1"} for *_, label in pairs]
    return write(
        path, [row | {"sentence1": pair[0], "sentence2": pair[1]} for row, pair in zip(own, pairs, strict=True)]
    )


def anli(path, pairs):
    columns = ("context", "hypothesis", "label")
    own = [dict(zip(columns, (*pair, label[0]), strict=True)) for *pair, label in pairs]
    return write(path, [{"uid": "u1", **row, "model_label": "e", "emturk": False} for row in own])


def converted(tmp_path, kind, files, **options):
    stats, written = convert(kind, files, tmp_path / "out.csv", **options)
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == KINDS[kind].columns
    assert len(rows) == written
    return stats, [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("entailment", [PAIRS[1][:2], PAIRS[3][:2], PAIRS[6][:2]]),
        ("neutral", [PAIRS[2][:2], PAIRS[4][:2]]),
        ("contradiction", [PAIRS[0][:2], PAIRS[5][:2]]),
        ("all", [pair[:2] for pair in PAIRS[:7]]),
        ("labelled", PAIRS[:7]),
    ],
)
def test_pairs_of_each_kind_in_the_order_of_the_file(tmp_path, kind, expected):
    for form in (snli, anli):
        stats, rows = converted(tmp_path, kind, [form(tmp_path / "train.jsonl", PAIRS)])
        assert rows == expected
        assert stats.total() == len(PAIRS)


def test_triplets_have_a_contradiction_of_their_premise(tmp_path):
    stats, rows = converted(tmp_path, "triplets", [snli(tmp_path / "train.jsonl", PAIRS)])
    assert [row[:2] for row in rows] == [PAIRS[1][:2], PAIRS[6][:2]]
    assert {row[2] for row in rows} <= {"A man is asleep.", "Nobody is outside."}
    assert stats == {nli.NO_LABEL: 1, nli.OTHER_LABEL: 2, nli.CANDIDATE: 2, nli.NO_NEGATIVE: 1, USED: 2}


def test_two_hard_negatives_are_a_contradiction_and_a_neutral(tmp_path):
    source = snli(tmp_path / "train.jsonl", [*PAIRS, (BOAT, "They sleep.", "contradiction"), (HORSE, "Hi.", "neutral")])
    _, rows = converted(tmp_path, "two_hard_negatives", [source])
    assert [row[1] for row in rows] == ["A man rides.", "They are on the water.", "An animal carries a man."]
    assert rows[1] == (BOAT, "They are on the water.", "They sleep.", "They are sisters.")
    assert {row[3] for row in rows} <= {"He is late.", "Hi.", "They are sisters."}


def test_equal_premises_of_several_files_belong_together(tmp_path):
    first = snli(tmp_path / "snli.jsonl", [(HORSE, "A man rides.", "entailment")])
    spaced = f" {HORSE.replace(' ', '  ')}\n"
    second = anli(tmp_path / "anli.jsonl", [(spaced, "A man is asleep. ", "contradiction")])
    assert converted(tmp_path, "triplets", [first, second])[1] == [(HORSE, "A man rides.", "A man is asleep.")]


def test_only_the_first_of_equal_pairs_is_used(tmp_path):
    again = [(HORSE, "A man  rides.", "entailment"), (HORSE, "A man rides.", "contradiction")]
    stats, rows = converted(tmp_path, "labelled", [snli(tmp_path / "train.jsonl", PAIRS + again)])
    assert rows == PAIRS[:7]
    assert stats[REPEATED] == stats[nli.RELABELED] == 1
    assert stats.total() == len(PAIRS) + 2


def test_a_draw_depends_on_the_seed_and_not_on_other_premises_or_other_hard_negatives(tmp_path):
    pairs = [(f"Premise {i}.", f"It is {label} {j}.", label) for i in range(30) for label in LABELS for j in range(3)]
    source = snli(tmp_path / "train.jsonl", pairs)
    drawn = {seed: converted(tmp_path, "triplets", [source], seed=seed)[1] for seed in (1, 2)}
    assert drawn[1] != drawn[2]
    assert 0.15 < sum(row[2].endswith("0.") for row in drawn[1]) / len(drawn[1]) < 0.55
    some = converted(tmp_path, "triplets", [snli(tmp_path / "some.jsonl", pairs[90:])], seed=1)[1]
    assert some == drawn[1][-len(some) :]
    two = converted(tmp_path, "two_hard_negatives", [source], seed=1)[1]
    assert [row[:3] for row in two] == drawn[1]


def reference(files):
    """The pairs that may be used, by pandas."""
    frame = pd.concat([pd.read_json(file, lines=True) for file in files], ignore_index=True)
    frame = frame[frame.gold_label != "-"]
    for column in ("sentence1", "sentence2"):
        frame[column] = frame[column].str.split().str.join(" ")
        frame = frame[frame[column].str.contains(r"[^\W_]") & (frame[column].str.lower() != "n/a")]
    return frame.drop_duplicates(["sentence1", "sentence2"])


def check_triplets(rows, kept):
    """Check that each entailment with a contradiction of its premise gives one row."""
    grouped = {label: kept[kept.gold_label == label].groupby("sentence1").sentence2.agg(set) for label in LABELS}
    entailments, contradictions = grouped["entailment"].to_dict(), grouped["contradiction"].to_dict()
    for anchor, positive, negative in rows:
        assert positive in entailments[anchor]
        assert negative in contradictions[anchor]
        assert positive != negative
    expected = kept[(kept.gold_label == "entailment") & kept.sentence1.isin(contradictions)]
    assert [row[:2] for row in rows] == list(zip(expected.sentence1, expected.sentence2, strict=True))


def check_counts(stats, files, kept):
    raw = pd.concat([pd.read_json(file, lines=True) for file in files])
    counts = kept.gold_label.value_counts()
    assert stats.total() == len(raw) and stats[nli.NO_LABEL] == (raw.gold_label == "-").sum()
    assert stats[nli.OTHER_LABEL] == counts["neutral"] and stats[nli.CANDIDATE] == counts["contradiction"]
    assert stats[USED] + stats[nli.NO_NEGATIVE] == counts["entailment"]


@pytest.mark.parametrize("seed", range(3))
def test_triplets_are_those_of_pandas(tmp_path, seed):
    chance = random.Random(seed)
    labels, texts = (*LABELS, "-"), ["A.", "B b.", " B  b.", "C?", "n/a", "", "—", "D\u2028d"]
    drawn = [(chance.choice(texts), chance.choice(texts), chance.choice(labels)) for _ in range(200)]
    files = [snli(tmp_path / "1.jsonl", drawn[:120]), snli(tmp_path / "2.jsonl", drawn[120:])]
    stats, rows = converted(tmp_path, "triplets", files, seed=seed)
    check_triplets(rows, reference(files))
    check_counts(stats, files, reference(files))


@pytest.mark.slow
def test_real_snli(tmp_path, senteval_dir):
    source = senteval_dir.parent / "nli" / "snli_1.0_dev.jsonl"
    if not source.is_file():
        pytest.skip(f"no {source}")
    stats, rows = converted(tmp_path, "triplets", [source])
    check_triplets(rows, reference([source]))
    check_counts(stats, [source], reference([source]))


def test_the_output_can_be_trained_on(tmp_path):
    source = snli(tmp_path / "train.jsonl", [*PAIRS, (HORSE, 'He said, "Go\u0085 on!"', "entailment")])
    _, rows = converted(tmp_path, "triplets", [source])
    assert read_rows(tmp_path / "out.csv") == rows
    assert rows[-1][1] == 'He said, "Go on!"'
    _, rows = converted(tmp_path, "labelled", [source])
    assert list(iterate_rows(tmp_path / "out.csv", label_column="label")) == [(row[:2], row[2]) for row in rows]


GOOD = {"sentence1": HORSE, "sentence2": "A man rides.", "gold_label": "entailment"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"sentence1": "A m', "line 2: not JSON"),
        (json.dumps(GOOD | {"sentence2": None}).encode(), "line 2: sentence2 is not text: None"),
        (json.dumps(GOOD | {"gold_label": "maybe"}).encode(), "line 2: gold_label is 'maybe'; it should be one of"),
        (
            json.dumps(GOOD | {"sentence1": "\ud83d"}).encode(),
            r"line 2: sentence1 has a lone surrogate, half of a character \('\\ud83d'\)",
        ),
    ],
)
def test_invalid_rows_are_errors_or_dropped(tmp_path, line, message):
    source = tmp_path / "train.jsonl"
    source.write_bytes(json.dumps(GOOD).encode() + b"\n" + line + b"\n")
    with pytest.raises(UserError, match=message) as error:
        convert("entailment", [source], tmp_path / "out.csv")
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["train.jsonl"]
    stats, rows = converted(tmp_path, "entailment", [source], on_invalid_row="drop")
    assert len(rows) == 1 and stats == {USED: 1, INVALID: 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.jsonl", "", "is not a jsonl file of SNLI, MultiNLI or ANLI"),
        ("train.jsonl", '{"premise": "a", "hypothesis": "b", "label": 0}\n', "is not a jsonl file of SNLI"),
        ("snli_1.0_train.txt", "gold_label\tsentence1\n", "is not a jsonl file of SNLI"),
    ],
)
def test_other_files_are_errors(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as error:
        convert("triplets", [tmp_path / name], tmp_path / "out.csv")
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_no_rows_is_an_error_with_the_counts(tmp_path):
    source = snli(tmp_path / "train.jsonl", PAIRS[3:5])
    with pytest.raises(UserError, match=r"2 rows read: 1 no hard negative for the premise, 1 another label"):
        convert("triplets", [source], tmp_path / "out.csv")


def test_the_command(tmp_path, run_command):
    source = snli(tmp_path / "train.jsonl", PAIRS)
    other = anli(tmp_path / "anli.jsonl", [(BOAT, "They sleep.", "contradiction")])
    out = tmp_path / "out.csv"
    done = run_command("-m", "simcse_pl", "prepare", "nli", "triplets", source, other, out, "--seed", "1")
    assert [cell.strip() for cell in done.stdout.splitlines()[4].split("│")[1:-1]] == ["rows read", "9"]
    assert done.stdout.endswith(f"\n3 rows in {out}\n")
    assert done.stderr == ""
    assert len(read_rows(out)) == 3
