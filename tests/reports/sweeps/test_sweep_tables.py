"""The tables of a sweep, read back cell by cell."""

import csv
import io

import numpy as np
import pytest

from simcse_pl.reports.sweeps.sweep_tables import sweep_table


def shown(table):
    """Return heading and rows as a reader sees them."""
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [cells[0], *cells[2:]]


def data(table):
    return list(csv.DictReader(io.StringIO(table.csv())))


def column(table, name):
    heading, *rows = shown(table)
    return {row[0]: row[heading.index(name)] for row in rows}


def test_a_table_of_the_paper_has_its_rows_and_figures_beside_ours(write_sweep, job, group):
    scores = {"0.10": [0.81, 0.8123456789, 0.83], "fixed 0.1": [0.7, 0.75, 0.71], "0.3": [0.7, 0.7, 0.7]}
    jobs = [job(dev, seed=seed, row=row) for row, own in scores.items() for seed, dev in enumerate(own)]
    table = sweep_table(group(write_sweep("s", *jobs, table="table_3_dropout", size="mini")))
    assert table.title == "Table 3 of the paper, dropout, size=mini: Spearman x 100"
    heading, *rows = shown(table)
    assert heading == ["dropout", "dev", "paper", "test", "alignment", "uniformity"]
    assert [row[0] for row in rows] == ["0.0", "0.01", "0.05", "0.1", "0.15", "0.2", "0.5", "fixed 0.1", "0.3"]
    assert column(table, "paper") == {
        "0.0": "71.1", "0.01": "72.6", "0.05": "81.1", "0.1": "82.5", "0.15": "81.4", "0.2": "80.5", "0.5": "71.0",
        "fixed 0.1": "43.6", "0.3": "–",
    }  # fmt: skip
    for row, own in zip(("0.1", "fixed 0.1"), scores.values(), strict=False):
        mean, deviation = 100 * np.mean(own), 100 * np.std(own, ddof=1)
        assert column(table, "dev")[row].removeprefix("* ") == f"{mean:.2f} ± {deviation:.2f} (3)"
        assert column(table, "test")[row] == f"{mean - 5:.2f} ± {deviation:.2f}"
        exact = next(one for one in data(table) if one["dropout"] == row)
        assert [float(exact["dev"]), float(exact["dev std"])] == pytest.approx([mean, deviation], rel=1e-14)
        assert exact["dev n"] == "3"
    assert [row for row, cell in column(table, "dev").items() if cell.startswith("*")] == ["0.1"]
    assert rows[0] == ["0.0", "–", "71.1", "–", "–", "–"]


def test_each_column_of_the_paper_has_its_own_rows_and_its_own_best(write_sweep, job, group):
    jobs = [
        job(dev, row=row, column=setting, options={"setting": setting})
        for setting, scores in (("unsupervised", (0.6, 0.5)), ("supervised", (0.7, 0.8)))
        for row, dev in zip(("CLS with MLP", "first-last avg."), scores, strict=True)
    ]
    table = sweep_table(group(write_sweep("s", *jobs, table="table_6_pooling")))
    heading, *rows = shown(table)
    assert heading[:4] == ["pooling", "setting", "dev", "paper"]
    assert [row[:4] for row in rows if row[0] in ("CLS with MLP", "first-last avg.")] == [
        ["CLS with MLP", "unsupervised", "* 60.00 (1)", "81.7"],
        ["CLS with MLP", "supervised", "70.00 (1)", "86.2"],
        ["first-last avg.", "unsupervised", "50.00 (1)", "81.2"],
        ["first-last avg.", "supervised", "* 80.00 (1)", "86.1"],
    ]


@pytest.mark.parametrize(
    ("column_", "figures"),
    [
        ("two encoders", {"paper": "68.9"}),
        (None, {"paper, one encoder": "67.1", "paper, two encoders": "68.9"}),
    ],
)
def test_the_papers_column_is_that_of_the_sweep_or_all(column_, figures, write_sweep, job, group):
    folder = write_sweep("s", job(0.7, row="next sentence", column=column_), table="table_2_objective")
    table = sweep_table(group(folder))
    heading, *rows = shown(table)
    (row,) = (row for row in rows if row[0] == "next sentence" and row[1] != "–")
    assert {name: cell for name, cell in zip(heading, row, strict=True) if name.startswith("paper")} == figures
    assert "setting" not in heading


def test_transfer_is_beside_the_papers_with_its_own_number_of_seeds(write_sweep, job, group):
    jobs = [
        job(0.7, seed=0, row=0.1, transfer_dev={"MR": 0.8, "CR": 0.9}),
        job(0.8, seed=1, row=0.1),
        job(0.8, row="none"),
    ]
    table = sweep_table(group(write_sweep("s", *jobs, table="table_d2_mlm")))
    assert shown(table)[0] == [
        "weight of MLM", "dev", "paper", "test", "alignment", "uniformity", "transfer", "paper, transfer",
    ]  # fmt: skip
    assert column(table, "transfer") == {"none": "–", "0.01": "–", "0.1": "85.00 (1)", "1": "–"}
    assert column(table, "paper, transfer")["0.1"] == "86.2"


def test_a_single_row_is_not_marked_as_best_and_missing_scores_are_dashes(write_sweep, job, group):
    table = sweep_table(group(write_sweep("s", *(job(0.7 + n / 100, seed=n) for n in range(3)))))
    assert shown(table)[1][:2] == ["all jobs", "71.00 ± 1.00 (3)"]
    table = sweep_table(group(write_sweep("nan", job(float("nan"), test=0.5))))
    assert shown(table) == [["runs", "dev", "test"], ["all jobs", "–", "50.00 (1)"]]


def test_scores_are_the_metric_that_chose_the_checkpoint_and_the_lowest_may_be_the_best(write_sweep, job, group):
    def lowest(loss, row):
        scores = {"before": {"loss": 2.0}, "best": {"loss": loss}, "test": {}, "test_before": {}}
        return job(0.0, row=row, monitor="loss", mode="min", **scores)

    groups = group(write_sweep("s", lowest(1.5, "0.1"), lowest(1.25, "0.0"), table="table_3_dropout"))
    table = sweep_table(groups)
    assert table.title.endswith(": loss, lower is better")
    assert list(table.frame) == [
        "dropout",
        "dev",
        "dev std",
        "dev n",
    ]  # neither test, geometry nor the paper's Spearman
    shown = dict(table.shown()[["dropout", "dev"]].to_numpy().tolist())
    assert (shown["0.1"], shown["0.0"]) == ("1.500 (1)", "* 1.250 (1)")
    notes = " ".join(table.notes)
    assert "dev before training 2.000" in notes and "so they are not shown" in notes


def test_methods_have_differences_from_simcse_and_published_averages(compare, of_seeds):
    scores = {"esimcse": [0.81, 0.83, 0.80], "hardness_weighting": [0.80, 0.79, 0.77], "simcse": [0.80, 0.81, 0.79]}
    found = compare(*of_seeds(scores), *of_seeds({"sup_simcse": [0.85] * 3}, setting="supervised"), size="mini")
    table = sweep_table(found)
    assert table.title == "methods (sweep), size=mini: Spearman x 100"
    assert shown(table) == [
        ["method", "setting", "dev", "difference on dev", "published", "published difference", "test"],
        ["simcse", "unsupervised", "80.00 ± 1.00 (3)", "–", "76.25", "–", "75.00 ± 1.00"],
        ["esimcse", "unsupervised", "81.33 ± 1.53 (3)", "+1.33 [-0.10, +2.77]", "78.27", "+2.02", "76.33 ± 1.53"],
        ["hardness_weighting", "unsupervised", "78.67 ± 1.53 (3)", "-1.33 [-4.20, +1.54]", "–", "–", "73.67 ± 1.53"],
        ["sup_simcse", "supervised", "85.00 ± 0.00 (3)", "–", "81.57", "–", "80.00 ± 0.00"],
    ]
    (row,) = (row for row in data(table) if row["method"] == "esimcse")
    assert float(row["difference on dev high"]) - float(row["difference on dev"]) == pytest.approx(1.434, abs=1e-3)
    assert row["difference on dev n"] == "3"


def test_a_star_marks_a_gain_beyond_the_spread_of_seeds_and_no_loss(compare, of_seeds):
    scores = {"simcse": [0.8, 0.81], "esimcse": [0.85, 0.8601], "mixcse": [0.81, 0.87], "pcl": [0.75, 0.7601]}
    table = sweep_table(compare(*of_seeds(scores)))
    stars = {name: cell.startswith("*") for name, cell in column(table, "difference on dev").items()}
    assert stars == {"simcse": False, "esimcse": True, "mixcse": False, "pcl": False}
    assert not any("*" in cell for cell in column(table, "dev").values())


def test_one_seed_has_a_difference_without_an_interval(compare):
    table = sweep_table(compare(("simcse", 0.8, 0), ("esimcse", 0.81, 0), ("esimcse", 0.9, 1)))
    assert column(table, "difference on dev") == {"simcse": "–", "esimcse": "+1.00 (1)"}


def test_the_average_of_sts_and_its_difference_are_shown_where_it_was_measured(compare):
    tasks = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
    jobs = [
        (name, 0.8, seed, {"sts": {task: mean + 0.01 * (k - 3) for k, task in enumerate(tasks)}})
        for name, own in {"simcse": [0.7, 0.72], "esimcse": [0.75, 0.76]}.items()
        for seed, mean in enumerate(own)
    ]
    table = sweep_table(compare(*jobs))
    assert shown(table)[0][-2:] == ["sts", "difference on sts"]
    assert column(table, "sts") == {"simcse": "71.00 ± 1.41", "esimcse": "75.50 ± 0.71"}
    assert column(table, "difference on sts")["esimcse"] == "+4.50 [-1.85, +10.85]"
