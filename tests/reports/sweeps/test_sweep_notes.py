"""The notes below the tables of a sweep."""

import pytest

from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_notes import sweep_notes
from simcse_pl.reports.sweeps.sweep_results import read_sweeps
from tests.reports.conftest import of_seeds


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


def test_different_metrics_are_a_warning(write_sweep, job, group):
    other = job(0.7, options={"a": 2}, monitor="mrr", best={"mrr": 0.5})
    notes = sweep_notes(group(write_sweep("s", job(0.7, options={"a": 1}), other)))
    assert "warning: checkpoints chosen by different metrics: Spearman x 100 or mrr x 100" in notes


def test_notes_say_what_methods_are_compared_with_and_what_a_star_means(compare):
    jobs = of_seeds({name: [0.7, 0.8, 0.75] for name in ("simcse", "esimcse")})
    jobs += of_seeds({"angle": [0.7, 0.8], "sup_simcse": [0.7, 0.8]}, setting="supervised")
    notes = sweep_notes(compare(*jobs))
    assert notes[0] == "dev: STS-B dev, which selects the checkpoint; mean ± sample standard deviation (seeds)"
    assert notes[2:] == [
        "difference: from simcse (unsupervised) or sup_simcse (supervised) with the same seed, mean [95% t-interval]; "
        "over 2 seeds it reaches 9.0 standard deviations to each side; over 3 seeds it reaches 2.5 standard deviations "
        "to each side; *: a gain whose interval excludes 0; about 1 in 40 methods without any effect gets a star",
        "published: STS average on test, BERT-base",
    ]


def test_notes_name_published_scores_that_are_copies_or_not_certain(compare):
    notes = sweep_notes(compare(*((name, 0.8, 0) for name in ("simcse", "arccse", "mixcse", "simcse_pp"))))
    assert found(notes, "published") == [
        "published: STS average on test, BERT-base; copied from a third party: arccse, mixcse; "
        "not certain: simcse_pp (computed as 76.25 plus the gain of 1.8 over SimCSE in the abstract)"
    ]


def test_notes_name_methods_without_a_baseline(compare):
    notes = sweep_notes(compare(("esimcse", 0.8, 0), ("pcl", 0.8, 0), ("mine", 0.8, 0, {"setting": None})))
    expected = "no difference, because SimCSE in this setting is not in the sweep: esimcse; pcl; mine"
    assert found(notes, "no difference") == [expected] and not found(notes, "difference")


def test_a_method_that_was_trained_on_other_data_than_simcse_is_a_warning(compare):
    notes = sweep_notes(compare(("simcse", 0.8, 0), ("cards", 0.8, 0, {"choices": {"data": "text"}})))
    assert "warning: cards was trained on text, not on wiki as simcse" in notes


def test_the_tasks_of_the_sts_average_are_named_and_counted(write_sweep, job, group):
    notes = sweep_notes(group(write_sweep("few", job(0.7, sts={"STS-B": 0.8, "STS12": 0.7}))))
    assert "sts: mean Spearman x 100 on test of STS12, STS-B (2 of 7 tasks)" in notes
