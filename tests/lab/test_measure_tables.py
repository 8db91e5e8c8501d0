"""The tables of geometry, retrieval and own data."""

import pytest

from simcse_pl.lab.tables import geometry_tables, own_data_table, retrieval_table
from tests.lab.invented import make_result


def test_each_measure_is_a_column():
    results = [make_result("a"), make_result("b", seed=2), make_result("none", geometry=None)]
    frames = [table.frame.set_index("encoder") for table in geometry_tables(results)]
    assert frames[0].index.tolist() == frames[1].index.tolist() == ["a", "b"]
    measured = frames[0].loc["b"].to_dict() | frames[1].loc["b"].to_dict()
    known = {"alignment": 0.2, "uniformity": -2.5 + 2 * 0.123456789012, "mean cosine": 0.2, "effective rank": 20.5}
    known |= {"Sum(WW^T)": 123456.7, "largest eigenvalue": 543.2, "trace": 2758.0}
    assert {name: measured[name] for name in known} == pytest.approx(known)


def test_retrieval_has_the_nearest_sentences_below_each_query():
    short = {"corpus": "other.txt", "queries": [{"query": "A dog runs.", "neighbours": [{"sentence": "found"}]}]}
    table = retrieval_table([make_result("a"), make_result("b", retrieval=short)])
    assert table.frame[""].tolist() == ["query", "#1", "#2", "#3"] * 2
    assert table.frame["a"].tolist()[:2] == ["A man rides a boat.", "a A man rides a boat. 0"]
    assert table.shown()["b"].tolist() == ["–"] * 4 + ["A dog runs.", "found", "–", "–"]


def test_own_data_of_encoders_is_compared_and_other_data_is_a_note():
    first = make_result("one", own={"data": "de.tsv", "metrics": {"mrr": 0.5, "loss": 1.25}})
    second = make_result("two", own={"data": "en.tsv", "metrics": {"mrr": 0.75, "spearman": None}})
    table = own_data_table([first, make_result("other"), second])
    assert table.shown().to_dict("list") == {
        "encoder": ["one", "two"], "mrr ↑": ["50.00", "75.00"], "loss ↓": ["1.250", "–"], "Spearman ↑": ["–", "–"],
    }  # fmt: skip
    assert table.notes == ["one on de.tsv", "two on en.tsv"]


def test_each_file_of_own_data_is_a_row():
    metrics = {"de/mrr": 0.5, "de/map": 0.4, "en/mrr": 0.7, "en/map": 0.6, "mrr": 0.6, "map": 0.5}
    results = [make_result(label, own={"data": "de, en", "metrics": metrics}) for label in ("one", "two")]
    scores = [["de", "50.00", "40.00"], ["en", "70.00", "60.00"], ["mean", "60.00", "50.00"]]
    rows = [[label, *row] for label in ("one", "two") for row in scores]
    assert own_data_table(results).shown().to_numpy().tolist() == rows
