"""The lines beside a sweep's table: each is there where it must be, and not where it must not."""

import pytest

from simcse_pl.reports.sweeps.notes import sweep_notes
from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_results import read_sweeps


def found(notes, start):
    return [note for note in notes if note.startswith(start)]


def test_a_sound_sweep_has_what_was_run_and_no_warning(write_sweep, job, group):
    jobs = [job(0.7, seed=seed, row=row) for row in (0.1, 0.2) for seed in (2, 1)]
    assert sweep_notes(group(write_sweep("s", *jobs, table="table_3_dropout"))) == [
        "dev: STS-B dev, which the checkpoint is chosen by; alignment and uniformity are of dev; "
        "mean ± sample standard deviation (seeds); *: best on dev",
        "model minilm; data wiki; steps 60; seeds 1, 2; dev before training 60.00",
        "paper: BERT-base, unsupervised, on STS-B dev",
    ]


def test_what_differs_is_told_from_the_lowest_to_the_highest(write_sweep, job, group):
    before = {"spearman": 0.4567, "alignment": 0.1, "uniformity": -1.0}
    jobs = [
        job(0.7, options={"model": "bert"}, choices={"model": "bert"}),
        job(0.7, options={"model": "minilm"}, choices={"data": "nli"}, before=before, steps=40),
    ]
    notes = sweep_notes(group(write_sweep("s", *jobs)))
    assert notes[1] == (
        "model bert or minilm; data wiki or nli; steps 60 or 40; seed 0; dev before training 45.67 to 60.00"
    )


def test_of_seeds_alone_the_ends_are_told(write_sweep, job, group):
    scores = {3: 0.71, 5: 0.69, 8: 0.705}
    notes = sweep_notes(group(write_sweep("s", *(job(dev, seed=seed) for seed, dev in scores.items()))))
    assert notes[-1] == "dev from 69.00 (seed 5) to 71.00 (seed 3)"
    assert not found(sweep_notes(group(write_sweep("one", job(0.7)))), "dev from")
    broken = write_sweep("broken", job(0.7), job(float("nan"), seed=1), job(0.8, seed=2))
    assert not found(sweep_notes(group(broken)), "dev from")


def test_transfer_tasks_are_named_and_counted(write_sweep, job, group):
    few = write_sweep("few", job(0.7, transfer_dev={"CR": 0.8, "MR": 0.7}))
    assert "transfer: mean accuracy x 100 on dev of MR, CR (2 of 7 tasks), scikit-learn classifier" in sweep_notes(
        group(few)
    )
    all_ = dict.fromkeys(("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC"), 0.8)
    notes = sweep_notes(group(write_sweep("all", job(0.7, transfer_dev=all_))))
    assert (
        "transfer: mean accuracy x 100 on dev of MR, CR, SUBJ, MPQA, SST, TREC, MRPC, scikit-learn classifier" in notes
    )


@pytest.mark.parametrize(
    ("table", "column", "row", "expected"),
    [
        ("table_7_hard_negative", None, "none", ["paper: BERT-base, supervised, on STS-B dev"]),
        ("table_6_pooling", "supervised", "x", ["paper: BERT-base, supervised, on STS-B dev"]),
        (
            "table_2_objective",
            "two encoders",
            "x",
            ["paper: BERT-base, unsupervised, two encoders, on STS-B dev"],
        ),
        (
            "table_6_pooling",
            None,
            "x",
            [
                "paper: BERT-base, on STS-B dev",
                "warning: sweep.column is not set; the table's columns: unsupervised, supervised",
            ],
        ),
        (
            "table_2_objective",
            "three",
            "x",
            [
                "paper: BERT-base, unsupervised, on STS-B dev",
                "warning: sweep.column=three; the table's columns: one encoder, two encoders",
            ],
        ),
        (
            "table_3_dropout",
            None,
            None,
            ["warning: no job says which row of the table it is (sweep.row), so that the paper's are not shown"],
        ),
        (
            "table_a1_hyperparameters",
            None,
            None,
            [
                "the paper chose, of batch sizes and learning rates: unsupervised BERT-base 64 and 3e-05, "
                "unsupervised BERT-large 64 and 1e-05, unsupervised RoBERTa-base 512 and 1e-05, "
                "unsupervised RoBERTa-large 512 and 3e-05, supervised base 512 and 5e-05, "
                "supervised large 512 and 1e-05"
            ],
        ),
        (
            "table_9_nothing",
            None,
            "x",
            [
                "warning: the paper has no table_9_nothing; those that it has: table_1_augmentation, "
                "table_2_objective, table_3_dropout, table_4_supervised_data, table_6_pooling, table_7_hard_negative, "
                "table_d1_temperature, table_d2_mlm, table_a1_hyperparameters"
            ],
        ),
        ("batch_size", None, None, []),
        (None, None, None, []),
    ],
)
def test_the_papers_setting_and_what_is_wrong_with_the_sweeps_place_in_it(
    table, column, row, expected, write_sweep, job, group
):
    assert sweep_notes(group(write_sweep("s", job(0.7, row=row, column=column), table=table)))[2:] == expected


def test_groups_with_other_numbers_of_seeds_are_a_warning(write_sweep, job, group):
    jobs = [job(0.7, seed=s, options={"a": a}) for a, seeds in ((1, 3), (2, 2)) for s in range(seeds)]
    notes = sweep_notes(group(write_sweep("s", *jobs, job(options={"a": 3}))))
    assert found(notes, "warning") == ["warning: not all have as many seeds: a=1: 3, a=2: 2, a=3: 0"]


def test_one_seed_each_is_a_warning_and_one_group_alone_is_not(write_sweep, job, group):
    notes = sweep_notes(group(write_sweep("s", *(job(0.7, options={"a": a}) for a in (1, 2)))))
    expected = "warning: one seed each, though seeds alone may move scores by points; seed=0,1,2 tells how far"
    assert found(notes, "warning") == [expected]
    assert not found(sweep_notes(group(write_sweep("one", job(0.7)))), "warning")


def test_a_seed_that_counts_twice_is_a_warning(write_sweep, job):
    folders = {
        name: write_sweep(name, *(job(0.7, seed=seed, row=0.1) for seed in seeds), table="table_3_dropout")
        for name, seeds in (("a", (0, 1)), ("b", (1, 2)))
    }
    (sweep,) = read_sweeps(folders)
    assert found(sweep_notes(group_by_seed(sweep)), "warning") == [
        "warning: 0.1: seed 1 counts more than once (a/1, b/0)",
    ]


def test_other_validation_data_is_a_warning(write_sweep, job, group):
    jobs = [job(0.7, seed=n, validation=name) for n, name in enumerate(("sample dev", "STS-B dev", "sample dev"))]
    notes = sweep_notes(group(write_sweep("s", *jobs)))
    assert notes[0].startswith("dev: sample dev or STS-B dev, which")
    assert found(notes, "warning") == ["warning: validated on different data: sample dev (0, 2); STS-B dev (1)"]


def test_jobs_that_failed_broke_were_ended_or_are_missing_are_named_with_what_is_their_own(write_sweep, job, group):
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
        "failed, or not at their end: 1 (a=1 seed=1)",
        "no score on dev: 3 (a=2 seed=0)",
        "missing: 2",
        "ended early by the search: 4",
    ]


def test_a_failed_job_that_differs_in_nothing_is_its_folder_alone(write_sweep, job, group):
    assert sweep_notes(group(write_sweep("s", job(0.7), job())))[-1] == "failed, or not at their end: 1"
