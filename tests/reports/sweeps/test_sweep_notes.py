"""The warnings below the table of a sweep."""

from simcse_pl.reports.sweeps.sweep_tables import sweep_notes


def test_what_makes_scores_hard_to_compare_is_a_warning(write_sweep, job, group):
    other = {"validation": "sample", "monitor": "mrr", "best": {"mrr": 0.5}}
    jobs = [job(0.7, options={"a": 1}), job(0.7, options={"a": 2}, **other)]
    notes = " ".join(sweep_notes(group(write_sweep("s", *jobs))))
    for warning in ("validated on different data", "checkpoints chosen by different metrics", "one seed per row"):
        assert f"warning: {warning}" in notes
