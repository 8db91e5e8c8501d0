"""All tables and figures of results."""

from simcse_pl.reports.evaluation_report import encoder_figures, encoder_tables
from simcse_pl.results.evaluation_results import read


def test_results_have_the_tables_and_figures_of_what_was_measured(make_result, write_run):
    results = [make_result("a"), make_result("b", seed=1)]
    tables = ["sts", "sts_pearson", "sts_subsets", "transfer", "geometry", "spectrum", "retrieval"]
    assert [table.name for table in encoder_tables(results)] == tables
    figures = encoder_figures(results, [read(write_run())])
    assert list(figures) == ["alignment_uniformity", "training_paths", "spectra", "similarities"]
    bare = make_result(sts=("STS14",), transfer=(), geometry=None, retrieval=None, failed={"STS12": "no files"})
    assert [table.name for table in encoder_tables([bare])] == ["sts", "sts_pearson"]
    assert "STS12: no files" in encoder_tables([bare])[0].notes[-1]
    assert encoder_figures([bare]) == {}
