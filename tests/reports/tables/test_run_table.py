"""The table of a training run."""

from simcse_pl.reports.tables.run_table import run_table


def test_scores_are_of_dev_and_test_before_training_and_at_the_best_step():
    scores = {"spearman": 0.7, "alignment": 0.25, "uniformity": -2.0}
    results = {"validation": "STS-B", "steps": 60, "best_step": 48, "test": scores | {"uniformity": float("nan")}}
    results |= {"before": scores | {"spearman": 0.63}, "test_before": scores | {"spearman": 0.62}}
    rows = run_table(results | {"best": scores | {"spearman": 0.7754}}).shown().to_dict("list")
    assert rows["Spearman ↑"] == ["63.00", "77.54", "62.00", "70.00"]
    assert rows["uniformity ↓"] == ["-2.000", "-2.000", "-2.000", "–"]


def test_the_first_column_is_the_metric_that_chose_the_checkpoint_and_a_run_may_have_no_test_set():
    before, best = {"recall@1": 0.25, "mrr": 0.5, "trace": 12.0}, {"recall@1": 0.5, "mrr": None}
    results = {"validation": "dev.tsv", "monitor": "mrr", "before": before, "best": best, "test_before": {}, "test": {}}
    table = run_table(results | {"steps": 9, "best_step": 6})
    assert list(table.shown())[2:] == ["mrr ↑", "recall@1 ↑"]
    assert table.shown()["mrr ↑"].tolist() == ["50.00", "–"]
