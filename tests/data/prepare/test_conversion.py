"""Counts of rows by outcome, what counts as words, and checks of the paths."""

from pathlib import Path

import pytest

from simcse_pl.data.prepare.conversion import ConversionStats, check_paths, has_words, usable_rows
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.text_files import Unreadable


def test_words_have_a_letter_or_a_digit_and_are_not_n_a():
    assert all(map(has_words, ("Yes.", "7", "n/a, he said", "犬が走る。", "É")))
    assert not any(map(has_words, ("", ".", "-- ?!", "n/a", "N/A")))


def test_rows_are_counted_by_outcome():
    stats = ConversionStats()
    assert str(stats) == "no rows read"
    rows = [("line 1", [" x\ty", "z"]), ("line 2", Unreadable("odd")), ("line 3", "other"), ("line 4", ["x", "..."])]
    for row in usable_rows(Path("a.tsv"), rows * 2, "drop", stats):
        assert row == ["x y", "z"]
        stats["used"] += 1
    frame = stats.table("rows").frame
    counts = {"rows read": 8, "used": 2, "invalid": 2, "other": 2, "a sentence without words": 2}
    assert dict(zip(frame[""], frame["rows"], strict=True)) == counts
    assert str(stats) == "8 rows read: 2 used, 2 invalid, 2 other, 2 a sentence without words"
    with pytest.raises(UserError) as error:
        list(usable_rows(Path("a.tsv"), rows, "error", ConversionStats()))
    assert str(error.value) == "a.tsv, line 2: odd (--on-invalid-row drop skips such rows)"


def test_paths_that_cannot_be_read_or_written_are_errors(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("x")
    for files, out, message in (
        ([tmp_path / "no.jsonl"], tmp_path / "out.csv", "no file"),
        ([source, tmp_path], tmp_path / "out.csv", "is a folder"),
        ([source], tmp_path, "is a folder"),
    ):
        with pytest.raises(UserError, match=message):
            check_paths(files, out)
