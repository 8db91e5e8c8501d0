"""Places in files, and damaged files; tests/properties/test_readers.py reads back what was written."""

import gzip
import json

import pandas
import pytest

from simcse_pl.data.readers.formats import open_table
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import Unreadable


def test_line_numbers_count_lines_not_rows(tmp_path):
    (tmp_path / "data.csv").write_text('a,b\n"one\nmore",two\n\nthree,four\n')
    assert [place for place, _ in open_table(tmp_path / "data.csv").records] == ["line 2", "line 5"]
    pandas.DataFrame({"a": ["b", "c"]}).to_parquet(tmp_path / "data.parquet")
    assert [place for place, _ in open_table(tmp_path / "data.parquet").records] == ["row 1", "row 2"]


@pytest.mark.parametrize("name", ["data.txt", "data.csv", "data.tsv", "data.jsonl"])
def test_a_line_that_is_not_utf8_is_reported_and_the_rest_is_read(name, tmp_path):
    good = json.dumps({"a": "b"}).encode() if name.endswith("jsonl") else b"good"
    (tmp_path / name).write_bytes(b"\n".join([good, b"caf\xe9", good]) + b"\n")
    records = list(open_table(tmp_path / name, header=False).records)
    assert [place for place, _ in records] == ["line 1", "line 2", "line 3"]
    assert records[1][1] == Unreadable("not UTF-8 (byte 0xe9)")
    assert not isinstance(records[2][1], Unreadable)


def test_the_first_object_of_jsonl_names_the_columns(tmp_path):
    lines = ['{"a": "x", "b": 1}', "nonsense", "[1]", "", '{"b": "y", "c": 2}']
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    table = open_table(tmp_path / "data.jsonl")
    assert table.header == ["a", "b"]
    (_, first), (_, nonsense), (_, array), (place, last) = table.records
    assert (first, place, last) == (["x", 1], "line 5", [None, "y"])
    assert nonsense.problem.startswith("not JSON: ") and array == Unreadable("not a JSON object")


def test_an_unclosed_quotation_mark_is_an_unreadable_row(tmp_path):
    (tmp_path / "data.csv").write_text('a,b\n"one,two\nthree,four\n')
    ((place, cells),) = open_table(tmp_path / "data.csv").records
    assert place == "line 2" and "is a quotation mark missing?" in cells.problem


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.xlsx", b"", "its name should end in .txt, .csv"),
        ("data.txt.gz", b"not gzip at all", "cannot be read"),
        ("data.txt.gz", gzip.compress(b"a\n" * 9999, mtime=0)[:-20], "cannot be read"),
        ("data.parquet", b"PAR1 or not", "cannot be read"),
        ("data.csv", b"a\xff,b\nc,d\n", "line 1: not UTF-8"),
    ],
)
def test_files_that_cannot_be_read(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        list(open_table(tmp_path / name).records)
    assert str(tmp_path / name) in str(error.value)


def test_parquet_with_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "a.parquet"
    pandas.DataFrame({"a": ["ZZZZZZZZ"]}).to_parquet(path, compression=None)
    path.write_bytes(path.read_bytes().replace(b"ZZZZZZZZ", b"ZZZ\xff\xffZZZ"))
    with pytest.raises(UserError, match="a.parquet cannot be read: 'utf-8' codec can't decode"):
        list(open_table(path).records)
