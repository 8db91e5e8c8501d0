"""The notes below the table of a sweep."""

import pytest

from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_results import read_sweeps
from simcse_pl.reports.sweeps.sweep_tables import sweep_notes


def found(notes, start):
    return [note for note in notes if note.startswith(start)]


def test_notes_say_what_was_run(write_sweep, job, group):
    before = {"spearman": 0.4567}
    jobs = [job(0.7, seed=seed, row=0.1, sts={"STS-B": 0.8, "STS12": 0.7}) for seed in (2, 1)]
    jobs += [job(0.7, seed=1, row=0.2, before=before, steps=40, choices={"data": "nli"}, transfer_dev={"MR": 0.8})]
    assert sweep_notes(group(write_sweep("s", *jobs, table="table_3_dropout"))) == [
        "dev: STS-B dev, which selects the checkpoint; mean ± sample standard deviation (seeds); *: best on dev",
        "sts: mean Spearman x 100 on test of STS12, STS-B (2 of 7 tasks)",
        "transfer: mean accuracy x 100 on dev of MR (1 of 7 tasks), scikit-learn classifier; paper: pytorch classifier",
        "model minilm; data wiki or nli; steps 60 or 40; seeds 1, 2; dev before training 45.67 to 60.00",
        "paper: BERT-base, unsupervised, on STS-B dev",
    ]


@pytest.mark.parametrize(
    ("table", "column_", "expected"),
    [
        ("table_2_objective", "two encoders", "paper: BERT-base, unsupervised, two encoders, on STS-B dev"),
        ("table_6_pooling", None, "paper: BERT-base, on STS-B dev"),
        ("table_a1_hyperparameters", None, "the paper's choice of batch size and learning rate: unsupervised BERT-ba"),
    ],
)
def test_notes_name_the_papers_setting(table, column_, expected, write_sweep, job, group):
    assert found(sweep_notes(group(write_sweep("s", job(0.7, row="x", column=column_), table=table))), expected)


def test_what_makes_scores_hard_to_compare_is_a_warning(write_sweep, job, group):
    jobs = [
        job(0.7, options={"a": 1}),
        job(0.7, options={"a": 2}, validation="sample", monitor="mrr", best={"mrr": 0.5}),
    ]
    assert [note.partition("; ")[0] for note in found(sweep_notes(group(write_sweep("s", *jobs))), "warning")] == [
        "warning: validated on different data: STS-B dev, sample",
        "warning: checkpoints chosen by different metrics: Spearman x 100 or mrr x 100",
        "warning: one seed per row",
    ]


def test_a_seed_that_counts_twice_is_a_warning(write_sweep, job):
    folders = {
        name: write_sweep(name, *(job(0.7, seed=seed, row=0.1) for seed in seeds), table="table_3_dropout")
        for name, seeds in (("a", (0, 1)), ("b", (1, 2)))
    }
    (sweep,) = read_sweeps(folders)
    assert found(sweep_notes(group_by_seed(sweep)), "warning") == ["warning: 0.1, 1: this seed counts 2 times"]


def test_notes_name_jobs_that_failed_or_were_pruned(write_sweep, job, group):
    jobs = [
        job(0.7, seed=0, options={"a": 1, "b": 5}, failed={"TREC": "no file TREC.label"}),
        job(seed=1, options={"a": 1, "b": 5}),
        job(0.8, seed=1, options={"a": 2, "b": 5}, trial={"values": {}, "pruned": True}),
    ]
    assert sweep_notes(group(write_sweep("s", *jobs)))[-3:] == [
        "failed: TREC: no file TREC.label (0)",
        "failed or unfinished: 1 (a=1 seed=1)",
        "pruned by the search: 2 (a=2 seed=1)",
    ]


def test_notes_say_what_methods_are_compared_with_and_what_a_star_means(compare, of_seeds):
    jobs = of_seeds({name: [0.7, 0.8, 0.75] for name in ("simcse", "esimcse")})
    jobs += of_seeds({"angle": [0.7, 0.8], "sup_simcse": [0.7, 0.8]}, setting="supervised")
    (note,) = found(sweep_notes(compare(*jobs)), "difference")
    assert note == (
        "difference: from simcse (unsupervised) or sup_simcse (supervised) with the same seed, mean [95% t-interval]; "
        "*: a gain whose interval excludes 0; about 1 in 40 methods without any effect gets a star"
    )


def test_notes_name_the_model_of_published_scores(compare):
    notes = sweep_notes(compare(("simcse", 0.8, 0), ("arccse", 0.8, 0)))
    assert found(notes, "published") == ["published: STS average on test, BERT-base"]


def test_notes_name_methods_without_a_baseline_or_with_other_data(compare):
    supervised = {"setting": "supervised"}
    jobs = [("simcse", 0.8, 0), ("cards", 0.8, 0, {"choices": {"data": "text"}}), ("angle", 0.8, 0, supervised)]
    notes = sweep_notes(compare(*jobs))
    assert found(notes, "no difference")[0].endswith(": angle")
    assert "warning: unsupervised methods were trained on different data: wiki or text" in notes
