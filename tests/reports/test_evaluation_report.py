"""All tables and figures of results."""

from simcse_pl.reports.evaluation_report import encoder_figures, encoder_tables
from simcse_pl.results.evaluation_results import read


def test_all_results_have_tables_and_figures(make_result, write_run):
    results = [make_result("a"), make_result("b", seed=1)]
    tables = ["sts", "sts_pearson", "sts_subsets", "transfer"]
    assert [table.name for table in encoder_tables(results)] == [*tables, "geometry", "spectrum", "retrieval"]
    figures = encoder_figures(results, [read(write_run())])
    assert list(figures) == ["alignment_uniformity", "training_paths", "spectra", "similarities"]
    assert "weighted by size" in encoder_tables(results, "wmean")[0].title


def test_missing_results_have_no_tables_and_figures(make_result):
    bare = make_result(sts=("STS14",), transfer=(), geometry=None, retrieval=None)
    assert [table.name for table in encoder_tables([bare])] == ["sts", "sts_pearson"]
    assert encoder_figures([bare]) == {}
    assert encoder_tables([make_result(sts=(), transfer=(), geometry=None, retrieval={"queries": []})]) == []


def test_every_failure_is_a_note_of_the_first_table(make_result):
    one = make_result("one", sts=("STS13",), failed={"STS14": "no files", "geometry": "no STS-B"})
    first, *others = encoder_tables([one, make_result("two", failed={"STS14": "no files"})])
    assert first.notes[-2:] == ["failed: STS14: no files (one; two)", "failed: geometry: no STS-B (one)"]
    assert not any(note.startswith("failed") for table in others for note in table.notes)
