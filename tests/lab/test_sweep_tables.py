"""The tables of a sweep, read back cell by cell, the notes below them, and the figure, read back from its axes."""

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from simcse_pl.lab.latex import latex
from simcse_pl.lab.published import ablation
from simcse_pl.lab.seed_groups import _is_baseline
from simcse_pl.lab.sweep_figure import sweep_figure
from simcse_pl.lab.sweep_tables import seed_table, sweep_notes, sweep_table
from tests.lab.invented import group, job, of_seeds


def shown(table):
    """Return heading and rows as a reader sees them."""
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [cells[0], *cells[2:]]


def data(table):
    return list(csv.DictReader(io.StringIO(table.frame.to_csv(index=False))))


def column(table, name):
    heading, *rows = shown(table)
    return {row[0]: row[heading.index(name)] for row in rows}


def test_a_table_of_the_paper_has_its_rows_and_figures_beside_ours(write_sweep):
    scores = {"0.10": [0.81, 0.8123456789, 0.83], "fixed 0.1": [0.7, 0.75, 0.71], "0.3": [0.7, 0.7, 0.7]}
    jobs = [job(dev, seed=seed, row=row) for row, own in scores.items() for seed, dev in enumerate(own)]
    table = sweep_table(group(write_sweep("s", *jobs, table="table_3_dropout", size="mini")))
    assert [*column(table, "paper").items()] == [("0.1", "82.5"), ("fixed 0.1", "43.6"), ("0.3", "–")]
    for row, own in zip(("0.1", "fixed 0.1"), scores.values(), strict=False):
        mean, deviation = 100 * np.mean(own), 100 * np.std(own, ddof=1)
        assert column(table, "dev")[row].removeprefix("* ") == f"{mean:.2f} ± {deviation:.2f} (3)"
        assert column(table, "test")[row] == f"{mean - 5:.2f} ± {deviation:.2f}"
        exact = next(one for one in data(table) if one["dropout"] == row)
        assert [float(exact["dev"]), float(exact["dev std"])] == pytest.approx([mean, deviation], rel=1e-14)
        assert exact["dev n"] == "3"
    assert [row for row, cell in column(table, "dev").items() if cell.startswith("*")] == ["0.1"]


def test_each_column_of_the_paper_has_its_own_rows_and_its_own_best(write_sweep):
    jobs = [
        job(dev, seed=seed, row=row, column=setting, options={"setting": setting})
        for setting, scores in (("unsupervised", (0.6, 0.5)), ("supervised", (0.7, 0.8)))
        for row, dev in zip(("CLS with MLP", "first-last avg."), scores, strict=True)
        for seed in range(2)
    ]
    table = sweep_table(group(write_sweep("s", *jobs, table="table_6_pooling")))
    heading, *rows = shown(table)
    assert heading[:5] == ["pooling", "setting", "dev", "difference on dev", "paper"]
    assert any("from CLS with MLP with the same setting and seed" in note for note in table.notes)
    assert [row[:5] for row in rows if row[0] in ("CLS with MLP", "first-last avg.")] == [
        ["CLS with MLP", "unsupervised", "* 60.00 ± 0.00 (2)", "–", "81.7"],
        ["CLS with MLP", "supervised", "70.00 ± 0.00 (2)", "–", "86.2"],
        ["first-last avg.", "unsupervised", "50.00 ± 0.00 (2)", "-10.00 [-10.00, -10.00]", "81.2"],
        ["first-last avg.", "supervised", "* 80.00 ± 0.00 (2)", "+10.00 [+10.00, +10.00]", "86.1"],
    ]


def test_scores_are_the_metric_that_chose_the_checkpoint_and_the_lowest_may_be_the_best(write_sweep):
    def lowest(loss, row, seed):
        scores = {"before": {"loss": 2.0}, "best": {"loss": loss}, "test": {}, "test_before": {}}
        return job(0.0, seed, row=row, monitor="loss", mode="min", **scores)

    jobs = [lowest(loss, row, seed) for loss, row in ((1.5, "0.1"), (1.25, "0.0")) for seed in range(2)]
    groups = group(write_sweep("s", *jobs, table="table_3_dropout"))
    table = sweep_table(groups)
    assert "paper" not in table.frame  # Spearman's correlation
    shown = dict(table.shown()[["dropout", "dev"]].to_numpy().tolist())
    assert (shown["0.1"], shown["0.0"]) == ("1.500 ± 0.000 (2)", "* 1.250 ± 0.000 (2)")


def test_published_scores_stand_beside_scores_on_stsb_alone(write_sweep, compare):
    own = {"validation": "mine.tsv"}
    ablation_table = sweep_table(group(write_sweep("paper", job(0.7, row="0.1", **own), table="table_3_dropout")))
    methods = sweep_table(compare(*of_seeds({"simcse": [0.8], "mixcse": [0.82]}, **own)))
    for table in (ablation_table, methods):
        assert not {"paper", "published"} & {*table.frame}
        assert any(note.endswith("so they are not shown") for note in table.notes)


EQUAL = {1: [0.7, 0.71, 0.72], 2: [0.71] * 3, 3: [0.70999] * 3, 4: [0.7] * 3}  # means that are shown as equal
SMALL = {"spearman": 0.7, "alignment": 0.00042, "uniformity": -0.5}


@pytest.mark.parametrize(
    ("jobs", "name", "cells"),
    [
        ([job(0.7, options={"a": 1}), job(0.8, options={"a": 2})], "dev", ["70.00 (1)", "80.00 (1)"]),  # of one seed
        (
            [job(dev, seed, options={"a": a}) for a, own in EQUAL.items() for seed, dev in enumerate(own)],
            "dev",
            ["* 71.00 ± 1.00 (3)", "* 71.00 ± 0.00 (3)", "* 71.00 ± 0.00 (3)", "70.00 ± 0.00 (3)"],
        ),
        ([job(0.7, best=SMALL, before=SMALL)], "alignment", ["0.00042"]),
    ],
)
def test_the_best_of_several_seeds_have_a_star_and_small_numbers_two_digits(jobs, name, cells, write_sweep):
    assert [*column(sweep_table(group(write_sweep("s", *jobs))), name).values()] == cells


def test_rows_are_compared_with_the_baseline_of_the_paper_or_the_first_one_over_shared_seeds(write_sweep):
    def compared(*jobs, table=None):
        found = sweep_table(group(write_sweep(str(table), *jobs, table=table)))
        notes = [note.partition(", mean")[0] for note in found.notes if note.startswith("difference")]
        heading, *rows = shown(found)
        return [row[heading.index("difference on dev")] for row in rows], notes

    scores = {"0.0": [0.71, 0.72], "0.1": [0.72, 0.74], "0.2": [0.73, 0.75, 0.9]}
    jobs = [job(dev, seed, row=row) for row, own in scores.items() for seed, dev in enumerate(own)]
    gains = ["-1.50 [-7.85, +4.85]", "–", "+1.00 [+1.00, +1.00] (2)"]
    assert compared(*jobs, table="table_3_dropout") == (gains, ["difference: from 0.1 with the same seed"])
    grid = {(1, "x"): {0: 0.71, 1: 0.72}, (1, "y"): {0: 0.72, 2: 0.9}, (2, "x"): {0: 0.74, 1: 0.75}}
    jobs = [job(dev, seed, options={"a": a, "b": b}) for (a, b), own in grid.items() for seed, dev in own.items()]
    gains = ["–", "+1.00 (1)", "+3.00 [+3.00, +3.00]"]
    assert compared(*jobs) == (gains, ["difference: from a=1, b=x with the same seed"])
    files = {"a": 0.7, "b": 0.8}.items()
    measured = [job(dev, seed, options={"data.validation": file}) for file, dev in files for seed in (0, 1)]
    assert "difference on dev" not in shown(sweep_table(group(write_sweep("other", *measured))))[0]


def test_a_setting_without_the_papers_row_is_compared_with_no_other():
    groups = pd.DataFrame({"row": ["a", "SimCSE", "a"], "column": ["one", "one", "two"], "trained": True, "dev n": 1})
    paper = replace(ablation("table_2_objective"), baseline="SimCSE")
    assert _is_baseline(groups, ["column"], paper).tolist() == [False, True, False]
    assert _is_baseline(groups[groups["row"] == "a"], ["column"], paper).tolist() == [True, True]
    groups["dev n"] = [0, 1, 1]  # the first one diverged
    assert _is_baseline(groups, ["column"], None).tolist() == [False, True, True]


def test_the_scores_of_each_seed_give_the_mean_of_the_table(write_sweep):
    jobs = [job(0.7 + 0.01 * seed, seed, row=row) for row in ("0.0", "0.1") for seed in range(3)]
    sweep = group(write_sweep("s", *jobs, table="table_3_dropout"))
    frame = seed_table(sweep)
    assert list(frame) == ["dropout", "seed", "dev before", "dev", "test", "alignment", "uniformity"]
    assert frame["seed"].tolist() == ["0", "1", "2"] * 2
    means = frame.groupby("dropout")[["dev", "test"]].mean()
    assert means.to_numpy().tolist() == sweep.groups[["dev", "test"]].to_numpy().tolist()


def test_methods_have_differences_from_simcse_with_a_star_for_gains_and_published_averages(compare):
    scores = {"esimcse": [0.81, 0.83, 0.80], "hardness_weighting": [0.80, 0.79, 0.77], "simcse": [0.80, 0.81, 0.79]}
    scores |= {"mixcse": [0.85, 0.8601, 0.84], "pcl": [0.75, 0.7601, 0.74]}
    found = compare(*of_seeds(scores), *of_seeds({"sup_simcse": [0.85] * 3}, setting="supervised"), size="mini")
    rows = [
        ["method", "setting", "dev", "difference on dev", "published", "published difference", "test"],
        ["simcse", "unsupervised", "80.00 ± 1.00 (3)", "–", "76.25", "–", "75.00 ± 1.00"],
        ["esimcse", "unsupervised", "81.33 ± 1.53 (3)", "+1.33 [-0.10, +2.77]", "78.27", "+2.02", "76.33 ± 1.53"],
        ["hardness_weighting", "unsupervised", "78.67 ± 1.53 (3)", "-1.33 [-4.20, +1.54]", "–", "–", "73.67 ± 1.53"],
        ["mixcse", "unsupervised", "85.00 ± 1.01 (3)", "* +5.00 [+4.99, +5.02]", "77.66", "+1.41", "80.00 ± 1.01"],
        ["pcl", "unsupervised", "75.00 ± 1.01 (3)", "-5.00 [-5.01, -4.98]", "78.11", "+1.86", "70.00 ± 1.01"],
        ["sup_simcse", "supervised", "85.00 ± 0.00 (3)", "–", "81.57", "–", "80.00 ± 0.00"],
    ]  # the scores on test are 5 points lower, so they have the same differences
    assert shown(sweep_table(found)) == [[*row, row[3].replace("on dev", "on test")] for row in rows]


def test_a_setting_that_all_methods_have_is_below_the_table(compare):
    table = sweep_table(compare(*of_seeds({"simcse": [0.8, 0.81], "mixcse": [0.82, 0.8]})))
    assert "setting" not in table.frame and any(note.startswith("setting unsupervised; ") for note in table.notes)


def test_the_star_of_sts_does_not_depend_on_whether_lower_is_better_on_dev(compare):
    def jobs(name, loss, sts):
        scores = {"best": {"loss": loss}, "before": {"loss": 2.0}, "test": {}, "test_before": {}, "sts": {"STS12": sts}}
        return [(name, 0.0, seed, {"monitor": "loss", "mode": "min", **scores}) for seed in range(3)]

    table = sweep_table(compare(*jobs("simcse", 1.0, 0.7), *jobs("mixcse", 0.9, 0.6), *jobs("pcl", 1.1, 0.8)))
    stars = {name: [row for row, cell in column(table, name).items() if "*" in cell] for name in shown(table)[0]}
    assert stars["difference on dev"] == ["mixcse"] and stars["difference on sts"] == ["pcl"]


def test_scores_before_training_are_below_the_table_or_columns_if_rows_differ(write_sweep):
    def of_starts(name, *starts):
        jobs = [
            job(0.7, options={"a": n}, before={"spearman": dev}, test_before={"spearman": test})
            for n, (dev, test) in enumerate(starts)
        ]
        table = sweep_table(group(write_sweep(name, *jobs)))
        return table, next(note.partition("dev before")[2] for note in table.notes if "dev before" in note)

    table, facts = of_starts("equal", (0.6, 0.5), (0.6, 0.5))
    assert facts == " training 60.00; test before training 50.00" and "dev before" not in shown(table)[0]
    table, facts = of_starts("other", (0.6, 0.5), (0.4, 0.5))
    assert facts == " training 40.00 to 60.00; test before training 50.00"
    assert column(table, "dev before") == {"0": "60.00", "1": "40.00"} and "test before" not in shown(table)[0]


def test_options_that_all_jobs_share_and_the_data_are_below_the_table_in_every_format(write_sweep):
    given = {"size": "mini", "optimizer.lr": "1e-6", "logger": "csv", "model.dropout": 0.1}
    settings = {"data": "/home/me/my data/sample-1f.txt, 100 rows of 1"}
    models = {"a": {}, "b": {"model.name": "/home/me/my-bert"}}
    options = [given | {"setting": name} | own for name, own in models.items()]
    jobs = [job(0.7, row="0.1", options=own, settings=settings) for own in options]
    groups = group(write_sweep("s", *jobs, table="table_3_dropout", size="mini"))
    table, note = sweep_table(groups), "given: optimizer.lr=1e-6 model.dropout=0.1"
    assert note in table.notes and f"\n{note}\n" in table.markdown() and f"% {note}\n" in latex(table)
    assert {row["given"] for row in data(table)} == {note.removeprefix("given: ")}
    assert sweep_figure(groups).get_suptitle() == "dropout"
    facts = "model minilm or my-bert; data sample-1f.txt, 100 rows of 1; steps 60; "
    assert any(note.startswith(facts) for note in table.notes)


def test_equal_steps_of_different_batch_sizes_are_in_the_caption(write_sweep):
    jobs = [job(0.7, options={"data.batch_size": size}) for size in (16, 32)]
    assert "steps 60 for all batch sizes, so larger" in sweep_table(group(write_sweep("s", *jobs))).caption


def test_equal_warnings_of_several_jobs_are_one_line(write_sweep):
    texts = [f"training has changed val/x from 0.7{n} to -0.6{n}: lower optimizer.lr" for n in range(2)]
    warnings = [[texts[0], "overlap"], [texts[1], "overlap"], ["overlap"]]
    jobs = [job(0.7, seed=n, warnings=own) for n, own in enumerate(warnings)]
    notes = [note for note in sweep_notes(group(write_sweep("s", *jobs))) if note.startswith("warning")]
    assert notes == ["warning: training has changed val/x: lower optimizer.lr (jobs 0, 1)", "warning: overlap"]


def test_caption_and_axis_say_what_was_trained_and_measured_without_folders_and_options(write_sweep, compare):
    jobs = [job(0.7 + 0.1 * n, seed, options={"model.dropout": n, "size": "mini"}) for n in (0, 1) for seed in (0, 1)]
    sweep = group(write_sweep("mine", *jobs, size="mini"))
    table = sweep_table(sweep)
    caption, *explained = table.caption.split("; ")
    assert [caption, explained[0]] == ["Dropout: Spearman x 100", "dev: STS-B, which selects the checkpoint"]
    assert explained[1] == "mean ± standard deviation over seeds (number of seeds)" and "size" not in table.caption
    assert {"model minilm", "data wiki", "steps 60"} < {*explained}
    assert "difference: from model.dropout=0 with the same seed, mean [95% t-interval]" in explained
    assert sweep_figure(sweep).axes[0].get_xlabel() == "dev: STS-B (Spearman x 100)"
    methods = compare(*of_seeds({"simcse": [0.8, 0.81], "mixcse": [0.82, 0.84]}))
    assert "published: STS average on test that a paper or its code reports" in sweep_table(methods).caption
    assert sweep_figure(methods).axes[0].get_xlabel().startswith("difference from SimCSE on dev: STS-B\n")


def test_what_makes_scores_hard_to_compare_is_a_warning(write_sweep):
    other = {"validation": "sample", "monitor": "mrr", "best": {"mrr": 0.5}}
    jobs = [job(0.7, options={"a": 1}), job(0.7, options={"a": 2}, **other)]
    notes = " ".join(sweep_notes(group(write_sweep("s", *jobs))))
    for warning in ("validated on different data", "checkpoints chosen by different metrics", "one seed per row"):
        assert f"warning: {warning}" in notes


def test_other_content_under_the_same_name_and_a_job_without_a_score_are_below_the_table(write_sweep):
    files = [{"measured on": "1", "content": "3"}, {"measured on": "2", "content": "4"}, {"measured on": "2"}]
    scores = [0.7, 0.8, math.nan]
    jobs = [job(score, seed, settings=own) for seed, (score, own) in enumerate(zip(scores, files, strict=True))]
    notes = " ".join(sweep_notes(group(write_sweep("s", *jobs))))
    assert "warning: measured on files of the same name with other content" in notes
    assert "warning: all jobs: trained on files of the same name with other content" in notes
    assert "no score on dev: 2" in notes


def test_means_deviations_and_seeds_are_beside_the_papers_numbers(write_sweep):
    scores = {"none": [0.83, 0.85], "contradiction 1.0": [0.85, 0.87]}
    jobs = [job(dev, seed=seed, row=row) for row, own in scores.items() for seed, dev in enumerate(own)]
    ours, theirs = sweep_figure(group(write_sweep("s", *jobs, table="table_7_hard_negative"))).axes
    means, _, (bars,) = ours.containers[0].lines
    np.testing.assert_allclose(means.get_xdata().astype(float), [84, 86])
    np.testing.assert_allclose(means.get_ydata().astype(float), [0, 1])
    ends = [bar[:, 0] for bar in bars.get_segments() if len(bar)]
    np.testing.assert_allclose(ends, [[mean - 2**0.5, mean + 2**0.5] for mean in (84, 86)])
    seeds = [line.get_xdata() for line in ours.lines if line.get_marker() == "."]
    np.testing.assert_allclose(np.concatenate(seeds).astype(float), [83, 85, 85, 87])
    np.testing.assert_allclose(theirs.containers[0].lines[0].get_xdata().astype(float), [84.9, 86.2])
    starts = [
        [line.get_xdata() for line in axes.lines if line.get_label() == "before training"] for axes in (ours, theirs)
    ]
    assert starts == [[[60, 60]], []]
    assert sweep_figure(group(write_sweep("nan", job(float("nan"))))) is None
