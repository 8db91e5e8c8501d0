"""The folders of a sweep's jobs."""

from simcse_pl.results.run_files import job_folders


def test_jobs_are_the_numbered_folders_in_order(tmp_path):
    for name in ("10", "9", "0", "config", "²", "1.5"):
        (tmp_path / name).mkdir()
    (tmp_path / "3").write_text("")
    assert [job.name for job in job_folders(tmp_path)] == ["0", "9", "10"]
