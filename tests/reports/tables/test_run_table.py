"""The table of a training run, as printed."""

from simcse_pl.reports.tables.run_table import run_places, run_table
from simcse_pl.utils.terminal import show


def test_the_table_and_the_paths_of_a_run_which_are_not_wrapped_without_a_terminal(tmp_path, capsys):
    scores = {"spearman": 0.7, "alignment": 0.25, "uniformity": -2.0}
    results = {
        "validation": "STS-B",
        "steps": 60,
        "best_step": 48,
        "before": scores | {"spearman": 0.63},
        "test_before": scores | {"spearman": 0.62},
        "best": scores | {"spearman": 0.7754},
        "test": scores | {"uniformity": float("nan")},
    }
    folder = tmp_path / ("long" * 20)
    show(run_table(results).printed())
    show(run_places(folder, ["https://wandb.ai/run"]))
    text = capsys.readouterr().out
    expected = ("STS-B", "63.00", "62.00", "alignment ↓", "uniformity ↓", "77.54", "70.00", "step 48 of 60", "0.250")
    for part in (*expected, "-2.000", "–", f"{folder}/encoder\n", "W&B          https://wandb.ai/run\n"):
        assert part in text


def test_the_first_column_is_the_metric_that_chose_the_checkpoint_and_a_run_may_have_no_test_set():
    before, best = (
        {"recall@1": 0.25, "mrr": 0.5, "loss": 2.0, "trace": 12.0},
        {"recall@1": 0.5, "mrr": None, "loss": 1.0},
    )
    results = {"validation": "dev.tsv", "monitor": "mrr", "before": before, "best": best, "test_before": {}, "test": {}}
    results |= {"steps": 9, "best_step": 6}
    table = run_table(results)
    assert table.title == "dev.tsv (mrr, recall x 100)"
    assert table.shown().to_dict("list") == {
        "": ["before training", "best, step 6 of 9"],
        "split": ["dev", "dev"],
        "mrr ↑": ["50.00", "–"],
        "recall@1 ↑": ["25.00", "50.00"],
        "loss ↓": ["2.000", "1.000"],
    }
    for test_set, title in {"dev.tsv": "dev.tsv", "test.tsv": "dev.tsv, tested on test.tsv"}.items():
        assert run_table(results | {"test_set": test_set}).title == f"{title} (mrr, recall x 100)"
