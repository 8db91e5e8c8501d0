"""All tables and figures of results, and their files."""

import pytest

from simcse_pl.reports.evaluation_report import encoder_figures, encoder_tables
from simcse_pl.results.evaluation_results import read
from simcse_pl.utils.errors import UserError

TABLES = [
    "sts",
    "sts_pearson",
    "sts_subsets",
    "transfer",
    "geometry",
    "spectrum",
    "retrieval",
]


def test_all_results_have_tables_and_figures(make_result, write_run):
    results = [make_result("a"), make_result("b", seed=1)]
    assert [table.name for table in encoder_tables(results)] == TABLES
    figures = encoder_figures(results, [read(write_run())])
    assert list(figures) == ["alignment_uniformity", "training_paths", "spectra", "similarities"]


def test_missing_results_have_no_tables_and_figures(make_result):
    bare = make_result(sts=("STS14",), transfer=(), geometry=None, retrieval=None)
    assert [table.name for table in encoder_tables([bare])] == ["sts", "sts_pearson"]
    assert encoder_figures([bare]) == {}
    assert encoder_tables([make_result(sts=(), transfer=(), geometry=None, retrieval={"queries": []})]) == []


def test_every_failure_is_a_note_once(make_result):
    why = {"STS14": "no files", "geometry": "no STS-B", "retrieval": "not finite"}
    one = make_result("one", sts=("STS13",), geometry=None, retrieval=None, failed=why)
    tables = encoder_tables([one, make_result("two", geometry=None, retrieval=None, failed={"MR": "no folder"})])
    notes = {table.name: [note for note in table.notes if note.startswith("failed: ")] for table in tables}
    assert notes["sts"] == [
        "failed: STS14: no files (one)",
        "failed: geometry: no STS-B (one)",
        "failed: retrieval: not finite (one)",
    ]
    assert notes["transfer"] == ["failed: MR: no folder (two)"]


def test_the_aggregation_reaches_tables_and_figures(make_result):
    results = [make_result("a")]
    assert "weighted by size" in encoder_tables(results, "wmean")[0].title
    texts = [
        encoder_figures(results, aggregation=name)["alignment_uniformity"].axes[0].texts[0].get_text()
        for name in ("all", "wmean")
    ]
    assert texts == ["a (59.0)", "a (59.2)"]


def test_two_results_with_the_same_label_are_an_error(make_result):
    with pytest.raises(UserError, match="two results have the label a: give different ones with --labels"):
        encoder_tables([make_result("a"), make_result("b"), make_result("a")])
