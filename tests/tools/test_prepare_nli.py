"""Rows from SNLI, MultiNLI and ANLI, compared with pandas, and files of each format."""

import json
import random

import pandas as pd
import pytest

from simcse_pl.data.rows import read_rows
from simcse_pl.tools import prepare_nli as nli
from simcse_pl.tools.conversion import USED, ConversionStats
from simcse_pl.tools.prepare_nli import LABELS, make_rows

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


def snli(path, pairs):
    columns = ("sentence1", "sentence2", "gold_label")
    path.write_text("".join(json.dumps(dict(zip(columns, pair, strict=True))) + "\n" for pair in pairs))
    return path


def converted(kind, files, **options):
    stats = ConversionStats()
    return stats, list(make_rows(kind, files, stats, **options))


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
    stats, rows = converted(kind, [snli(tmp_path / "train.jsonl", PAIRS)])
    assert rows == expected and stats.total() == len(PAIRS)


CHINESE = dict(zip(LABELS, ("蕴含", "中立", "矛盾"), strict=True))


@pytest.mark.parametrize(
    ("name", "columns", "rows", "options"),
    [
        ("ocnli.txt", None, PAIRS, {}),
        ("cnsd.tsv", None, [(*pair, CHINESE.get(label, label)) for *pair, label in PAIRS], {}),
        ("kor.tsv", ("sentence1", "sentence2", "gold_label"), PAIRS, {}),
        ("klue.json", ("premise", "hypothesis", "gold_label"), PAIRS, {}),
        ("anli.jsonl", ("uid", "context", "hypothesis", "label"), [(1, *pair, label[0]) for *pair, label in PAIRS], {}),
        ("hub.jsonl", ("premise", "hypothesis", "label"), PAIRS, {}),
        ("numbers.csv", None, [(*p, (*LABELS, "-").index(label)) for *p, label in PAIRS[:7]], {"labels": "012"}),
        ("own.csv", ("Urteil", "a", "b"), [(x, a, b) for a, b, x in PAIRS], {"columns": ["a", "b", "Urteil"]}),
        (
            "xnli.tsv",
            ("language", "gold_label", "sentence1", "sentence2"),
            [row for a, b, x in PAIRS for row in (("de", x, a, b), ("fr", "neutral", a, b))],
            {"where": "language=de"},
        ),
        (
            "years.jsonl",
            ("year", "premise", "hypothesis", "label"),
            [row for a, b, x in PAIRS for row in ((2020, a, b, x), (2021, a, b, "neutral"), (None, b, a, x))],
            {"where": "year=2020"},
        ),
    ],
)
def test_files_as_they_are_published(name, columns, rows, options, tmp_path):
    frame = pd.DataFrame(rows, columns=columns, dtype=object)
    if "json" in name:
        frame.to_json(tmp_path / name, orient="records", lines=name.endswith("l"))
    else:
        separator = "," if name.endswith("csv") else "\t"
        frame.to_csv(tmp_path / name, sep=separator, header=columns is not None, index=False)
    _, made = converted("labelled", [tmp_path / name], **options)
    assert made == PAIRS[:7]


def test_a_draw_depends_on_the_seed_and_not_on_other_premises_or_other_hard_negatives(tmp_path):
    pairs = [(f"Premise {i}.", f"It is {label} {j}.", label) for i in range(30) for label in LABELS for j in range(3)]
    source = snli(tmp_path / "train.jsonl", pairs)
    drawn = {seed: converted("triplets", [source], seed=seed)[1] for seed in (1, 2)}
    assert drawn[1] != drawn[2]
    assert 0.15 < sum(row[2].endswith("0.") for row in drawn[1]) / len(drawn[1]) < 0.55
    some = converted("triplets", [snli(tmp_path / "some.jsonl", pairs[90:])], seed=1)[1]
    assert some == drawn[1][-len(some) :]
    two = converted("two_hard_negatives", [source], seed=1)[1]
    assert [row[:3] for row in two] == drawn[1]


def test_triplets_are_those_of_pandas(tmp_path):
    chance = random.Random(0)
    labels, texts = (*LABELS, "-"), ["A.", "B b.", " B  b.", "C?", "n/a", "", "—", "D\u2028d"]
    drawn = [(chance.choice(texts), chance.choice(texts), chance.choice(labels)) for _ in range(200)]
    files = [snli(tmp_path / "1.jsonl", drawn[:120]), snli(tmp_path / "2.jsonl", drawn[120:])]
    stats, rows = converted("triplets", files, seed=0)

    kept = pd.DataFrame(drawn, columns=["anchor", "other", "label"])
    assert stats.total() == len(kept) and stats[nli.NO_GOLD_LABEL] == (kept.label == "-").sum()
    kept = kept[kept.label != "-"]
    for column in ("anchor", "other"):
        kept[column] = kept[column].str.split().str.join(" ")
        kept = kept[kept[column].str.contains(r"[^\W_]") & (kept[column].str.lower() != "n/a")]
    kept = kept.drop_duplicates(["anchor", "other"])
    counts = kept.label.value_counts()
    assert stats[nli.OTHER_LABEL] == counts["neutral"] and stats[nli.CANDIDATE] == counts["contradiction"]
    assert stats[USED] + stats[nli.NO_NEGATIVE] == counts["entailment"]
    contradictions = kept[kept.label == "contradiction"].groupby("anchor").other.agg(set).to_dict()
    expected = kept[(kept.label == "entailment") & kept.anchor.isin(contradictions)]
    assert [row[:2] for row in rows] == list(zip(expected.anchor, expected.other, strict=True))
    assert all(negative in contradictions[anchor] for anchor, _, negative in rows)


def test_the_command_writes_the_rows_and_their_names(command, tmp_path):
    printed = command("prepare", "nli", "triplets", snli(tmp_path / "train.jsonl", PAIRS), tmp_path / "out.csv").out
    assert printed.endswith(f"2 rows in {tmp_path}/out.csv\n")
    _, rows = converted("triplets", [tmp_path / "train.jsonl"])
    assert read_rows(tmp_path / "out.csv", ["anchor", "positive", "negative"]) == rows
