"""The table of a training run."""

from simcse_pl.reports.tables.run_table import run_table


def test_scores_are_of_dev_and_test_before_training_and_at_the_best_step():
    scores = {"spearman": 0.7, "alignment": 0.25, "uniformity": -2.0}
    results = {"validation": "STS-B", "steps": 60, "best_step": 48, "test": scores | {"uniformity": float("nan")}}
    results |= {"before": scores | {"spearman": 0.63}, "test_before": scores | {"spearman": 0.62}}
    rows = run_table(results | {"best": scores | {"spearman": 0.7754}}).shown().to_dict("list")
    assert rows["Spearman ↑"] == ["63.00", "77.54", "62.00", "70.00"]
    assert rows["uniformity ↓"] == ["-2.000", "-2.000", "-2.000", "–"]
