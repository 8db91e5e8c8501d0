"""The table of a sweep, read back cell by cell."""

import csv
import io

import numpy as np
import pytest

from simcse_pl.reports.sweeps.sweep_tables import sweep_tables


def shown(table):
    """Heading and rows as a reader sees them."""
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [cells[0], *cells[2:]]


def data(table):
    return list(csv.DictReader(io.StringIO(table.csv())))


def column(table, name):
    heading, *rows = shown(table)
    return {row[0]: row[heading.index(name)] for row in rows}


def test_a_table_of_the_paper_has_its_rows_and_figures_beside_ours(write_sweep, job, group):
    scores = {0.1: [0.81, 0.8123456789, 0.83], "fixed 0.1": [0.7, 0.75, 0.71]}
    jobs = [job(dev, seed=seed, row=row) for row, own in scores.items() for seed, dev in enumerate(own)]
    (table,) = sweep_tables(group(write_sweep("s", *jobs, table="table_3_dropout", size="mini")))
    assert table.title == "Table 3 of the paper, dropout, size=mini: Spearman x 100"
    heading, *rows = shown(table)
    assert heading == ["dropout", "dev", "paper", "test", "alignment", "uniformity"]
    assert [row[0] for row in rows] == ["0.0", "0.01", "0.05", "0.1", "0.15", "0.2", "0.5", "fixed 0.1"]
    assert column(table, "paper") == {
        "0.0": "71.1", "0.01": "72.6", "0.05": "81.1", "0.1": "82.5", "0.15": "81.4", "0.2": "80.5", "0.5": "71.0",
        "fixed 0.1": "43.6",
    }  # fmt: skip
    for row, own in scores.items():
        mean, deviation = 100 * np.mean(own), 100 * np.std(own, ddof=1)
        assert column(table, "dev")[str(row)].removeprefix("* ") == f"{mean:.2f} ± {deviation:.2f} (3)"
        assert column(table, "test")[str(row)] == f"{mean - 5:.2f} ± {deviation:.2f}"
        exact = next(one for one in data(table) if one["dropout"] == str(row))
        assert [float(exact["dev"]), float(exact["dev std"])] == pytest.approx([mean, deviation], rel=1e-14)
        assert exact["dev n"] == "3"
    assert [row for row, cell in column(table, "dev").items() if cell.startswith("*")] == ["0.1"]
    assert rows[0] == ["0.0", "–", "71.1", "–", "–", "–"]


def test_one_seed_has_no_deviation(write_sweep, job, group):
    (table,) = sweep_tables(group(write_sweep("s", *(job(0.7 + n / 100, options={"a.b": n}) for n in range(2)))))
    assert shown(table) == [
        ["a.b", "dev", "test", "alignment", "uniformity"],
        ["0", "70.00 (1)", "65.00", "0.270", "-2.100"],
        ["1", "* 71.00 (1)", "66.00", "0.271", "-2.130"],
    ]
    assert [row["dev std"] for row in data(table)] == ["", ""]


def test_two_columns_of_the_paper_are_two_rows_each_with_its_own_figure_and_its_own_best(write_sweep, job, group):
    jobs = [
        job(dev, row=row, column=setting, options={"setting": setting})
        for setting, scores in (("unsupervised", (0.6, 0.5)), ("supervised", (0.7, 0.8)))
        for row, dev in zip(("CLS with MLP", "first-last avg."), scores, strict=True)
    ]
    (table,) = sweep_tables(group(write_sweep("s", *jobs, table="table_6_pooling")))
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
        ("one encoder", {"paper": "67.1"}),
        ("two encoders", {"paper": "68.9"}),
        (None, {"paper, one encoder": "67.1", "paper, two encoders": "68.9"}),
        ("three", {"paper, one encoder": "67.1", "paper, two encoders": "68.9"}),
    ],
)
def test_the_papers_column_is_that_which_the_sweep_names_else_all(column_, figures, write_sweep, job, group):
    folder = write_sweep("s", job(0.7, row="next sentence", column=column_), table="table_2_objective")
    (table,) = sweep_tables(group(folder))
    heading, *rows = shown(table)
    (row,) = (row for row in rows if row[0] == "next sentence" and row[1] != "–")
    assert {name: cell for name, cell in zip(heading, row, strict=True) if name.startswith("paper")} == figures
    assert "setting" not in heading


def test_transfer_stands_beside_the_papers_and_counts_its_own_seeds(write_sweep, job, group):
    jobs = [
        job(0.7, seed=0, row=0.1, transfer_dev={"MR": 0.8, "CR": 0.9}),
        job(0.8, seed=1, row=0.1),
        job(0.8, row="none"),
    ]
    (table,) = sweep_tables(group(write_sweep("s", *jobs, table="table_d2_mlm")))
    assert shown(table)[0] == [
        "weight of MLM", "dev", "paper", "test", "alignment", "uniformity", "transfer", "paper, transfer",
    ]  # fmt: skip
    assert column(table, "transfer") == {"none": "–", "0.01": "–", "0.1": "85.00 (1)", "1": "–"}
    assert column(table, "paper, transfer")["0.1"] == "86.2"


def test_without_a_table_every_option_that_differs_is_a_column(write_sweep, job, group):
    jobs = [
        job(0.7, seed=seed, options={"data.batch_size": size, "optimizer.lr": rate, "logger": "csv"})
        for size, rate in ((64, "1e-5"), (64, "3e-5"), (128, "1e-5"))
        for seed in (0, 1)
    ]
    tables = sweep_tables(group(write_sweep("s", *jobs)))
    assert [row[:3] for row in shown(tables[0])] == [
        ["data.batch_size", "optimizer.lr", "dev"],
        ["64", "1e-5", "* 70.00 ± 0.00 (2)"],
        ["64", "3e-5", "* 70.00 ± 0.00 (2)"],
        ["128", "1e-5", "* 70.00 ± 0.00 (2)"],
    ]
    assert len(tables) == 1  # one combination is missing: no grid


def test_two_options_in_every_combination_are_a_grid_as_well(write_sweep, job, group):
    jobs = [
        job(0.7 + size / 10000 + rate * 100, options={"data.batch_size": size, "optimizer.lr": rate})
        for size in (64, 128)
        for rate in (1e-5, 3e-5, 5e-5)
    ]
    folder = write_sweep("s", *jobs, table="table_a1_hyperparameters")
    long, grid = sweep_tables(group(folder), "sweep_2")
    assert (long.name, grid.name) == ("sweep_2", "sweep_2_grid")
    assert grid.title == "Table A.1 of the paper, hyperparameters: Spearman x 100 on dev"
    assert shown(grid) == [
        ["data.batch_size", "optimizer.lr=1e-05", "optimizer.lr=3e-05", "optimizer.lr=5e-05"],
        ["64", "70.74 (1)", "70.94 (1)", "71.14 (1)"],
        ["128", "71.38 (1)", "71.58 (1)", "* 71.78 (1)"],
    ]
    assert float(data(grid)[1]["optimizer.lr=3e-05"]) == pytest.approx(71.58)


def test_one_option_of_two_with_one_value_is_no_grid(write_sweep, job, group):
    one = write_sweep("one", *(job(0.7, options={"a": n, "b": n}) for n in range(2)))
    assert len(sweep_tables(group(one))) == 1
    rows = write_sweep("rows", *(job(0.7, row=r, options={"a": a, "b": b}) for r in "xy" for a in "01" for b in "01"))
    assert len(sweep_tables(group(rows))) == 1


def test_seeds_alone_are_one_row_and_none_is_best(write_sweep, job, group):
    (table,) = sweep_tables(group(write_sweep("s", *(job(0.7 + n / 100, seed=n) for n in range(3)))))
    assert shown(table)[1][:2] == ["all jobs", "71.00 ± 1.00 (3)"]


def test_a_group_of_failed_jobs_has_dashes(write_sweep, job, group):
    (table,) = sweep_tables(group(write_sweep("s", job(0.7, options={"a": 1}), job(options={"a": 2}))))
    assert shown(table)[2] == ["2", "–", "–", "–", "–"]
    assert data(table)[1]["dev n"] == "0"


def test_runs_without_any_number_on_dev_have_a_table(write_sweep, job, group):
    (table,) = sweep_tables(group(write_sweep("s", job(float("nan"), test=0.5))))
    assert shown(table) == [["runs", "dev", "test"], ["all jobs", "–", "50.00 (1)"]]
