"""Places in files, and damaged files; tests/properties/test_readers.py reads back what was written."""

import gzip

import pytest

from simcse_pl.data.readers.formats import open_table
from simcse_pl.utils.errors import UserError


def test_line_numbers_count_lines_not_rows(tmp_path):
    (tmp_path / "data.csv").write_text('a,b\n"one\nmore",two\n\nthree,four\n')
    assert [place for place, _ in open_table(tmp_path / "data.csv").records] == ["line 2", "line 5"]


def test_the_first_object_of_jsonl_names_the_columns(tmp_path):
    (tmp_path / "data.jsonl").write_text('{"a": "x", "b": 1}\n\n{"b": "y", "c": 2}\n')
    table = open_table(tmp_path / "data.jsonl")
    assert table.header == ["a", "b"]
    assert list(table.records) == [("line 1", ["x", 1]), ("line 3", [None, "y"])]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.txt.gz", gzip.compress(b"a\n" * 9999, mtime=0)[:-20], "cannot be read"),
        ("data.tsv", b"a\tb\nc\xff\td\n", "line 2: not UTF-8"),
        ("data.csv", b'a,b\n"one,two\nthree,four\n', "line 2: .*is a quotation mark missing"),
    ],
)
def test_files_that_cannot_be_read(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name}.*{message}"):
        list(open_table(tmp_path / name).records)
