"""The warnings below the table of a sweep."""

import pytest

from simcse_pl.reports.sweeps.sweep_notes import sweep_notes


def test_what_makes_scores_hard_to_compare_is_a_warning(write_sweep, job, group):
    other = {"validation": "sample", "monitor": "mrr", "best": {"mrr": 0.5}}
    jobs = [job(0.7, options={"a": 1}), job(0.7, options={"a": 2}, **other)]
    notes = " ".join(sweep_notes(group(write_sweep("s", *jobs))))
    for warning in ("validated on different data", "checkpoints chosen by different metrics", "one seed per row"):
        assert f"warning: {warning}" in notes


@pytest.mark.parametrize(
    ("job_of_other_kind", "note"),
    [
        (("cards", 0.8, 0, {"choices": {"data": "text"}}), "warning: cards was trained on text, not on wiki as SimCSE"),
        (("angle", 0.8, 0, {"setting": "supervised"}), "no difference"),
    ],
)
def test_a_method_with_other_data_or_without_a_baseline_is_named(job_of_other_kind, note, compare):
    assert note in " ".join(sweep_notes(compare(("simcse", 0.8, 0), job_of_other_kind)))
