"""What counts as words, and checks of the paths."""

import pytest

from simcse_pl.data.prepare.conversion import check_paths
from simcse_pl.utils.errors import UserError


def test_paths_that_cannot_be_read_or_written_are_errors(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("x")
    for files, out, message in (
        ([tmp_path / "no.jsonl"], tmp_path / "out.csv", "no file"),
        ([source, tmp_path], tmp_path / "out.csv", "no file"),
        ([source], tmp_path / "out.txt", "should end in .csv"),
    ):
        with pytest.raises(UserError, match=message):
            check_paths(files, out)
