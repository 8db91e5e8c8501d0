"""The tables of geometry, retrieval and own data."""

import pytest

from simcse_pl.reports.tables.measure_tables import geometry_tables, own_data_table, retrieval_table


def test_each_measure_is_a_column(make_result):
    results = [make_result("a"), make_result("b", seed=2), make_result("none", geometry=None)]
    table, spectrum = geometry_tables(results)
    assert table.frame["encoder"].tolist() == spectrum.frame["encoder"].tolist() == ["a", "b"]
    assert table.frame.iloc[1, 1:].to_dict() | spectrum.frame.iloc[1, 1:].to_dict() == pytest.approx(
        {
            "alignment": 0.2,
            "uniformity": -2.5 + 2 * 0.123456789012,
            "mean cosine": 0.2,
            "effective rank": 20.5,
            "top 1": 0.1,
            "top 10": 0.5,
            "top 100": 1.0,
            "IsoScore": 0.3,
            "Sum(WW^T)": 123456.7,
            "largest eigenvalue": 543.2,
            "trace": 2758.0,
            "share >= 0": 0.97,
        }
    )
    assert table.title == "Geometry on STS-B test: 2758 sentences, 338 positives"
    assert "| a         |       0.100 |       -2.500 |" in table.markdown()


def test_missing_measures_are_nan_and_different_data_is_a_note(make_result):
    table, _ = geometry_tables([make_result("a"), make_result("b", geometry={"alignment": 0.5})])
    assert table.frame.loc[1].isna().sum() == len(list(table.frame)) - 2
    assert "a on STS-B test: 2758 sentences, 338 positives" in table.notes
    assert table.title == "Geometry"


def test_retrieval_has_the_nearest_sentences_below_each_query(make_result):
    short = {"corpus": "other.txt", "queries": [{"query": "A dog runs.", "neighbours": [{"sentence": "found"}]}]}
    table = retrieval_table([make_result("a"), make_result("b", retrieval=short)])
    assert table.frame[""].tolist() == ["query", "#1", "#2", "#3"] * 2
    assert table.frame["a"].tolist()[:2] == ["A man rides a boat.", "a A man rides a boat. 0"]
    assert table.shown()["b"].tolist() == ["–"] * 4 + ["A dog runs.", "found", "–", "–"]
    assert table.title == "The nearest sentences" and any("b in other.txt" in note for note in table.notes)
    title = "The nearest sentences in captions.txt: 150000 sentences"
    assert retrieval_table([make_result("a"), make_result("b")]).title == title


def test_own_data_of_encoders_is_compared_and_other_data_is_a_note(make_result):
    first = make_result("one", own={"data": "de.tsv", "metrics": {"mrr": 0.5, "loss": 1.25}})
    second = make_result("two", own={"data": "de.tsv", "metrics": {"mrr": 0.75, "spearman": None}})
    table = own_data_table([first, make_result("other"), second])
    assert table.title == "Own data on de.tsv (mrr, Spearman x 100)" and not table.notes
    assert table.shown().to_dict("list") == {
        "encoder": ["one", "two"], "mrr ↑": ["50.00", "75.00"], "loss ↓": ["1.250", "–"], "Spearman ↑": ["–", "–"],
    }  # fmt: skip
    other = make_result("three", own={"data": "en.tsv", "metrics": {"mrr": 0.5}})
    assert own_data_table([first, other]).notes == ["one on de.tsv", "three on en.tsv"]
    assert own_data_table([make_result("other")]) is None
