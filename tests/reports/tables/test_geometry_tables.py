"""The tables of geometry and retrieval."""

import pytest
from rich.console import Console
from simcse_pl.reports.tables.geometry_tables import geometry_table, retrieval_table, spectrum_table


def test_each_measure_is_a_column(make_result):
    results = [make_result("a"), make_result("b", seed=2), make_result("none", geometry=None)]
    table, spectrum = geometry_table(results), spectrum_table(results)
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
    assert table.frame["uniformity"][1] == -2.5 + 2 * 0.123456789012
    assert "| a         |       0.100 |       -2.500 |" in table.markdown()


def test_the_tables_fit_100_columns(make_result):
    encoder = "outputs/minilm-nli_sample/2026-01-01_12-00-00-000000/encoder, whitening (target)"
    for table in (geometry_table([make_result(encoder)]), spectrum_table([make_result(encoder)])):
        console = Console(width=100)
        with console.capture() as captured:
            console.print(table.printed())
        lines = captured.get().splitlines()
        assert max(map(len, lines)) <= 100
        for number in table.shown().iloc[0, 1:]:
            assert number in captured.get()  # never broken


def test_missing_measures_are_nan_and_different_data_is_a_note(make_result):
    table = geometry_table([make_result("a"), make_result("b", geometry={"alignment": 0.5})])
    assert table.frame.loc[1].isna().sum() == len(list(table.frame)) - 2
    assert "a on STS-B test: 2758 sentences, 338 positives" in table.notes
    assert table.title == "Geometry"


def test_retrieval_has_the_nearest_sentences_below_each_query(make_result):
    table = retrieval_table([make_result("a"), make_result("b")])
    assert list(table.frame) == ["", "a", "b"]
    assert table.frame[""].tolist() == ["query", "#1", "#2", "#3"] * 2
    assert table.frame["a"].tolist()[:2] == ["A man rides a boat.", "a A man rides a boat. 0"]
    assert table.frame["b"].tolist()[4:6] == ["A dog runs.", "b A dog runs. 0"]
    assert table.title == "The nearest sentences in captions.txt: 150000 sentences"


def test_different_queries_and_depths_leave_gaps(make_result):
    short = {"corpus": "other.txt", "queries": [{"query": "A dog runs.", "neighbours": [{"sentence": "found"}]}]}
    table = retrieval_table([make_result("a"), make_result("b", retrieval=short)])
    assert table.frame["b"].tolist() == ["A man rides a boat.", None, None, None, "A dog runs.", "found", None, None]
    assert table.title == "The nearest sentences"
    assert any("b in other.txt" in note for note in table.notes)
