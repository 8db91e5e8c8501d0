"""Labels as words, numbers and strings, in training data, in evaluation files and in data sets of the hub."""

import json

import datasets
import pytest

from simcse_pl.data import hub_datasets
from simcse_pl.data.labels import label_text
from simcse_pl.data.rows import ReadOptions, iterate_rows
from simcse_pl.evaluation.evaluators import ScoredPairs
from simcse_pl.evaluation.ranking import BinaryPairs
from simcse_pl.utils.errors import UserError

KNOWN = [  # the labels of pairs, as scores and as 0 and 1
    (("1", "0", "1.0"), (1, 0, 1), (1, 0, 1)),
    (("entailment", "neutral", "contradiction"), (1, 0.5, 0), (1, 0, 0)),
    (("蕴含", "中立", "矛盾"), (1, 0.5, 0), (1, 0, 0)),
    (("含意", "矛盾", "함의"), (1, 0, 1), (1, 0, 1)),
    (("Yes", "no", "TRUE"), (1, 0, 1), (1, 0, 1)),
    ((True, False, 1.0), (1, 0, 1), (1, 0, 1)),
    (("not_duplicate", "duplicate", "not_equivalent"), (0, 1, 0), (0, 1, 0)),
]


@pytest.fixture
def write_file(tmp_path):
    def write_file(labels):
        rows = [{"a": f"first {i}", "b": f"second {i}", "y": label} for i, label in enumerate(labels)]
        (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return str(tmp_path / "pairs.jsonl")

    return write_file


@pytest.mark.parametrize(("labels", "scores", "classes"), KNOWN)
def test_words_are_numbers(labels, scores, classes, write_file):
    path = write_file(labels)
    assert [score for _, score in iterate_rows(path, ReadOptions(score_column="y"))] == list(scores)
    for kind, expected in ((ScoredPairs, scores), (BinaryPairs, classes)):
        assert [pair.score for pair in kind(path).sets["validation"][""]] == list(expected)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (("蕴含", "Entailment", "中立"), ["entailment", "entailment", "neutral"]),
        ((1, 1.0, "1.0"), ["1", "1", "1"]),
        (("Sport", "1,5", "-1"), ["Sport", "1,5", "-1"]),
    ],
)
def test_one_class_has_one_name(labels, classes, write_file):
    assert [name for _, name in iterate_rows(write_file(labels), ReadOptions(label_column="y"))] == classes


def test_words_of_ones_own(write_file):
    path, own = write_file(["andere", "gleiche", 0]), ["andere", "gleiche"]
    with pytest.raises(UserError, match="line 3: .*0.* not .*andere, gleiche of label_names"):
        list(iterate_rows(path, ReadOptions(score_column="y", label_names=own)))
    kept = {"label_names": own, "on_invalid_row": "drop"}
    assert [score for _, score in iterate_rows(path, ReadOptions(score_column="y", **kept))] == [0, 1]
    assert [name for _, name in iterate_rows(path, ReadOptions(label_column="y", **kept))] == own
    with pytest.raises(UserError, match="line 3: .* holds '0', not andere, gleiche of label_names"):
        BinaryPairs(path, label_names=own)
    file = {"file": write_file(own), "label_names": own}
    assert [pair.score for pair in BinaryPairs({"de": file}).sets["validation"]["de"]] == [0, 1]


@pytest.mark.parametrize("cell", ["maybe", "nan", "1e39", "4_5"])
def test_a_score_that_is_neither_a_finite_number_nor_a_known_word_is_an_error(cell, write_file):
    with pytest.raises(UserError, match=f"line 2: column y holds '{cell}', not a finite number or .*label_names"):
        list(iterate_rows(write_file(["yes", cell]), ReadOptions(score_column="y")))


def test_no_label_is_an_error(write_file):
    with pytest.raises(UserError, match="line 2: column y holds '-', not a label"):  # where annotators disagree
        list(iterate_rows(write_file(["yes", "-"]), ReadOptions(label_column="y")))


def test_missing_labels_are_empty():
    assert [label_text(cell) for cell in (None, float("nan"), "a", 2.0, [1])] == ["", "", "a", "2.0", [1]]


def test_labels_of_the_hub_are_words(monkeypatch):
    features = {"a": datasets.Value("string"), "y": datasets.ClassLabel(names=["entailment", "neutral"])}
    rows = {"a": ["x", "y", "z"], "y": [1, 0, -1]}
    hub = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    monkeypatch.setattr(hub_datasets, "load_hub_dataset", lambda name, split: hub)
    read = iterate_rows("hf://datasets/a/b", ReadOptions(label_column="y", on_invalid_row="drop"))
    assert [name for _, name in read] == ["neutral", "entailment"]
