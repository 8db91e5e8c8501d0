"""The tables of a sweep, read back cell by cell, and their notes."""

import csv
import io
import json

import numpy as np
import pytest

from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_results import read_sweeps
from simcse_pl.reports.sweeps.sweep_tables import sweep_notes, sweep_tables


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


def test_each_column_of_the_paper_has_its_own_rows_and_its_own_best(write_sweep, job, group):
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
def test_the_papers_column_is_that_of_the_sweep_or_all(column_, figures, write_sweep, job, group):
    folder = write_sweep("s", job(0.7, row="next sentence", column=column_), table="table_2_objective")
    (table,) = sweep_tables(group(folder))
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
    (table,) = sweep_tables(group(write_sweep("s", *jobs, table="table_d2_mlm")))
    assert shown(table)[0] == [
        "weight of MLM", "dev", "paper", "test", "alignment", "uniformity", "transfer", "paper, transfer",
    ]  # fmt: skip
    assert column(table, "transfer") == {"none": "–", "0.01": "–", "0.1": "85.00 (1)", "1": "–"}
    assert column(table, "paper, transfer")["0.1"] == "86.2"


def test_two_options_in_all_combinations_also_make_a_grid(write_sweep, job, group):
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


@pytest.mark.parametrize(
    "jobs",
    [
        [{"options": {"a": a, "b": b}} for a, b in ((1, 1), (1, 2), (2, 1))],  # one combination is missing
        [{"options": {"a": 1, "b": b}} for b in (1, 2)],
        [{"row": row, "options": {"a": a, "b": b}} for row in "xy" for a in "01" for b in "01"],
    ],
)
def test_there_is_no_grid_without_all_combinations_or_with_rows(jobs, write_sweep, job, group):
    assert len(sweep_tables(group(write_sweep("s", *(job(0.7, **own) for own in jobs))))) == 1


def test_a_single_row_is_not_marked_as_best_and_missing_scores_are_dashes(write_sweep, job, group):
    (table,) = sweep_tables(group(write_sweep("s", *(job(0.7 + n / 100, seed=n) for n in range(3)))))
    assert shown(table)[1][:2] == ["all jobs", "71.00 ± 1.00 (3)"]
    (table,) = sweep_tables(group(write_sweep("nan", job(float("nan"), test=0.5))))
    assert shown(table) == [["runs", "dev", "test"], ["all jobs", "–", "50.00 (1)"]]


def test_files_have_all_digits_in_three_columns_and_readers_one_cell(write_sweep, job, group):
    scores = [0.70123456789, 0.725, 0.680001]
    jobs = [job(dev, seed=seed, options={"a": "x"}) for seed, dev in enumerate(scores)] + [job(options={"a": "y"})]
    (table,) = sweep_tables(group(write_sweep("s", *jobs)))
    first, second = json.loads(table.json())["rows"]
    expected = [100 * np.mean(scores), 100 * np.std(scores, ddof=1), 3]
    assert [first["dev"], first["dev std"], first["dev n"]] == pytest.approx(expected, rel=1e-14)
    assert [second[name] for name in ("dev", "dev std", "dev n")] == [None, None, 0]
    assert r"\begin{tabular}{lrrrr}" in table.latex() and r"x & 70.21 ± 2.25 (3) &" in table.latex()


def found(notes, start):
    return [note for note in notes if note.startswith(start)]


def test_notes_of_a_complete_sweep_say_what_was_run(write_sweep, job, group):
    jobs = [job(0.7, seed=seed, row=row) for row in (0.1, 0.2) for seed in (2, 1)]
    assert sweep_notes(group(write_sweep("s", *jobs, table="table_3_dropout"))) == [
        "dev: STS-B dev, which selects the checkpoint; alignment and uniformity are measured on dev; "
        "mean ± sample standard deviation (seeds); *: best on dev",
        "model minilm; data wiki; steps 60; seeds 1, 2; dev before training 60.00",
        "paper: BERT-base, unsupervised, on STS-B dev",
    ]


def test_notes_name_all_models_data_and_steps(write_sweep, job, group):
    before = {"spearman": 0.4567, "alignment": 0.1, "uniformity": -1.0}
    jobs = [
        job(0.7, options={"model": "bert"}, choices={"model": "bert"}),
        job(0.7, options={"model": "minilm"}, choices={"data": "nli"}, before=before, steps=40),
    ]
    expected = "model bert or minilm; data wiki or nli; steps 60 or 40; seed 0; dev before training 45.67 to 60.00"
    assert sweep_notes(group(write_sweep("s", *jobs)))[1] == expected


def test_the_range_over_seeds_is_a_note(write_sweep, job, group):
    jobs = [job(dev, seed=seed) for seed, dev in {3: 0.71, 5: 0.69, 8: 0.705, 9: float("nan")}.items()]
    assert "dev from 69.00 (seed 5) to 71.00 (seed 3)" in sweep_notes(group(write_sweep("s", *jobs)))
    assert not found(sweep_notes(group(write_sweep("one", job(0.7)))), "dev from")


def test_transfer_tasks_are_named_and_counted(write_sweep, job, group):
    few = write_sweep("few", job(0.7, transfer_dev={"CR": 0.8, "MR": 0.7}))
    expected = "transfer: mean accuracy x 100 on dev of MR, CR (2 of 7 tasks), scikit-learn classifier"
    assert expected in sweep_notes(group(few))
    accuracies = dict.fromkeys(("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC"), 0.8)
    (note,) = found(sweep_notes(group(write_sweep("all", job(0.7, transfer_dev=accuracies)))), "transfer")
    assert note.endswith("MR, CR, SUBJ, MPQA, SST, TREC, MRPC, scikit-learn classifier")


CHOICES = (
    "the paper's choice of batch size and learning rate: unsupervised BERT-base 64 and 3e-05, unsupervised BERT-large "
    "64 and 1e-05, unsupervised RoBERTa-base 512 and 1e-05, unsupervised RoBERTa-large 512 and 3e-05, supervised base "
    "512 and 5e-05, supervised large 512 and 1e-05"
)
UNKNOWN = (
    "warning: unknown table table_9_nothing; tables of the paper: table_1_augmentation, table_2_objective, "
    "table_3_dropout, table_4_supervised_data, table_6_pooling, table_7_hard_negative, table_d1_temperature, "
    "table_d2_mlm, table_a1_hyperparameters"
)
UNSET = "warning: sweep.column is not set; the table's columns: unsupervised, supervised"
WRONG = "warning: sweep.column=three; the table's columns: one encoder, two encoders"
NO_ROW = "warning: sweep.row is not set in any job, so the paper's numbers are not shown"


@pytest.mark.parametrize(
    ("table", "column_", "row", "expected"),
    [
        ("table_6_pooling", "supervised", "x", ["paper: BERT-base, supervised, on STS-B dev"]),
        ("table_2_objective", "two encoders", "x", ["paper: BERT-base, unsupervised, two encoders, on STS-B dev"]),
        ("table_6_pooling", None, "x", ["paper: BERT-base, on STS-B dev", UNSET]),
        ("table_2_objective", "three", "x", ["paper: BERT-base, unsupervised, on STS-B dev", WRONG]),
        ("table_3_dropout", None, None, [NO_ROW]),
        ("table_a1_hyperparameters", None, None, [CHOICES]),
        ("table_9_nothing", None, "x", [UNKNOWN]),
        ("batch_size", None, None, []),
    ],
)
def test_notes_name_the_papers_setting_and_wrong_rows_and_columns(
    table, column_, row, expected, write_sweep, job, group
):
    assert sweep_notes(group(write_sweep("s", job(0.7, row=row, column=column_), table=table)))[2:] == expected


def test_one_seed_per_row_is_a_warning(write_sweep, job, group):
    notes = sweep_notes(group(write_sweep("s", *(job(0.7, options={"a": a}) for a in (1, 2)))))
    expected = "warning: one seed per row; scores can differ by points between seeds, so run seed=0,1,2"
    assert found(notes, "warning") == [expected]
    assert not found(sweep_notes(group(write_sweep("one", job(0.7)))), "warning")


def test_a_seed_that_counts_twice_is_a_warning(write_sweep, job):
    folders = {
        name: write_sweep(name, *(job(0.7, seed=seed, row=0.1) for seed in seeds), table="table_3_dropout")
        for name, seeds in (("a", (0, 1)), ("b", (1, 2)))
    }
    (sweep,) = read_sweeps(folders)
    expected = ["warning: 0.1: seed 1 counts more than once (a/1, b/0)"]
    assert found(sweep_notes(group_by_seed(sweep)), "warning") == expected


def test_different_validation_data_is_a_warning(write_sweep, job, group):
    jobs = [job(0.7, seed=n, validation=name) for n, name in enumerate(("sample dev", "STS-B dev", "sample dev"))]
    notes = sweep_notes(group(write_sweep("s", *jobs)))
    assert notes[0].startswith("dev: sample dev or STS-B dev, which")
    assert found(notes, "warning") == ["warning: validated on different data: sample dev (0, 2); STS-B dev (1)"]


def test_notes_name_jobs_that_failed_diverged_were_pruned_or_did_not_start(write_sweep, job, group):
    jobs = [
        job(0.7, seed=0, options={"a": 1, "b": 5}, failed={"TREC": "no file TREC.label"}),
        job(seed=1, options={"a": 1, "b": 5}),
        None,
        job(float("nan"), seed=0, options={"a": 2, "b": 5}),
        job(0.8, seed=1, options={"a": 2, "b": 5}, trial={"values": {}, "pruned": True}),
        job(0.8, seed=1, options={"a": 2, "b": 5}, failed={"TREC": "no file TREC.label"}),
    ]
    assert sweep_notes(group(write_sweep("s", *jobs)))[-5:] == [
        "failed: TREC: no file TREC.label (0; 5)",
        "failed or unfinished: 1 (a=1 seed=1)",
        "no score on dev: 3 (a=2 seed=0)",
        "not started: 2",
        "pruned by the search: 4",
    ]


def test_scores_are_the_metric_that_chose_the_checkpoint_and_the_lowest_may_be_the_best(write_sweep, job, group):
    def lowest(loss, row):
        scores = {"before": {"loss": 2.0}, "best": {"loss": loss}, "test": {}, "test_before": {}}
        return job(0.0, row=row, monitor="loss", mode="min", **scores)

    groups = group(write_sweep("s", lowest(1.5, "0.1"), lowest(1.25, "0.0"), table="table_3_dropout"))
    (table,) = sweep_tables(groups)
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
    assert "dev before training 2.000" in notes and "alignment" not in notes and "so they are not shown" in notes


def test_different_metrics_are_a_warning(write_sweep, job, group):
    other = job(0.7, options={"a": 2}, monitor="mrr", best={"mrr": 0.5})
    (table,) = sweep_tables(group(write_sweep("s", job(0.7, options={"a": 1}), other)))
    assert "warning: checkpoints chosen by different metrics: Spearman x 100 or mrr x 100" in table.notes
