"""Cells of every format, and files that are damaged."""

import csv
import gzip
import json

import pandas
import pytest

from simcse_pl.data.readers.formats import open_table
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.text_files import Unreadable

ROWS = [["One, two.", 'He said "no".'], ["Zwölf Boxkämpfer", "半年"], ["a\u0085b", "c\u2028d"]]


def write(path, rows=ROWS, header=("first", "second")):
    """Write rows with other libraries than the ones that read them."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    table = pandas.DataFrame(rows, columns=list(header))
    compression = "gzip" if path.suffix == ".gz" else None
    if kind == "csv":
        table.to_csv(path, index=False, compression=compression)
    elif kind == "tsv":
        text = "\n".join("\t".join(row) for row in [header, *rows]) + "\n"
        (gzip.open if compression else open)(path, "wb").write(text.encode())
    elif kind == "jsonl":
        table.to_json(path, orient="records", lines=True, force_ascii=False, compression=compression)
    elif kind == "parquet":
        table.to_parquet(path.with_suffix("") if compression else path)
        if compression:
            path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
    return path


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_cells(kind, packed, tmp_path):
    table = open_table(write(tmp_path / f"data.{kind}{packed}"))
    assert table.header == ["first", "second"]
    records = list(table.records)
    assert [list(cells) for _, cells in records] == ROWS
    first = {"csv": "line 2", "tsv": "line 2", "jsonl": "line 1", "parquet": "row 1"}
    assert records[0][0] == first[kind]


@pytest.mark.parametrize("content", [b"A b.\nC d.\n", b"A b.\r\nC d.", b"\xef\xbb\xbfA b.\n\n  \nC d.\n\n"])
def test_txt_is_a_sentence_a_line(content, tmp_path):
    (tmp_path / "data.txt").write_bytes(content)
    table = open_table(tmp_path / "data.txt")
    assert table.header is None
    assert [cells for _, cells in table.records] == [["A b."], ["C d."]]


def test_only_newlines_end_a_line(tmp_path):
    text = "one\u0085still one\u2028still\x0bstill\x0cstill\x1cstill"
    (tmp_path / "data.txt").write_text(text + "\ntwo\n", encoding="utf-8")
    assert [cells for _, cells in open_table(tmp_path / "data.txt").records] == [[text], ["two"]]


def test_a_carriage_return_is_text_in_tsv_and_told_in_csv(tmp_path):
    (tmp_path / "data.tsv").write_bytes(b"a\rb\tc\n")
    assert list(open_table(tmp_path / "data.tsv", header=False).records) == [("line 1", ["a\rb", "c"])]
    (tmp_path / "data.csv").write_bytes(b"a\rb,c\nd,e\n")
    bad, good = open_table(tmp_path / "data.csv", header=False).records
    assert bad[1].problem == "a carriage return outside quotation marks (is a quotation mark missing?)"
    assert good == ("line 2", ["d", "e"])


def test_line_numbers_count_lines_and_not_rows(tmp_path):
    (tmp_path / "data.csv").write_text('a,b\n"one\nmore",two\n\nthree,four\n')
    assert [place for place, _ in open_table(tmp_path / "data.csv").records] == ["line 2", "line 5"]


def test_a_cell_of_a_million_characters(tmp_path):
    with open(tmp_path / "data.csv", "w", newline="") as file:
        csv.writer(file).writerows([["a"], ["x" * 1_000_000]])
    ((_, cells),) = open_table(tmp_path / "data.csv").records
    assert len(cells[0]) == 1_000_000


@pytest.mark.parametrize("name", ["data.txt", "data.csv", "data.tsv", "data.jsonl"])
def test_a_line_that_is_not_utf8_is_told_and_the_rest_is_read(name, tmp_path):
    good = json.dumps({"a": "b"}).encode() if name.endswith("jsonl") else b"good"
    (tmp_path / name).write_bytes(b"\n".join([good, b"caf\xe9", good]) + b"\n")
    records = list(open_table(tmp_path / name, header=False).records)
    assert [place for place, _ in records] == ["line 1", "line 2", "line 3"]
    assert records[1][1] == Unreadable("not UTF-8 (byte 0xe9)")
    assert not isinstance(records[2][1], Unreadable)


def test_json_of_other_shapes(tmp_path):
    lines = ["nonsense", "[1]", '{"a": "x", "b": 1}', "", '{"b": "y"}', "[" * 100_000]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    table = open_table(tmp_path / "data.jsonl")
    records = list(table.records)
    assert table.header == ["a", "b"]
    assert [place for place, _ in records] == [f"line {i}" for i in (1, 2, 3, 5, 6)]
    assert [isinstance(cells, Unreadable) for _, cells in records] == [True, True, False, False, True]
    assert records[2][1] == ["x", 1]
    assert records[3][1] == [None, "y"]


def test_a_quotation_mark_that_is_never_closed(tmp_path):
    (tmp_path / "data.csv").write_text('a,b\n"one,two\nthree,four\n')
    ((place, cells),) = open_table(tmp_path / "data.csv").records
    assert place == "line 2"
    assert "quotation mark" in cells.problem


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.xlsx", b"", "its name should end in .txt, .csv"),
        ("data", b"", "its name should end in"),
        ("data.gz", b"", "its name should end in"),
        ("data.txt.gz", b"not gzip at all", "cannot be read"),
        ("data.txt.gz", gzip.compress(b"a\n" * 9999, mtime=0)[:-20], "cannot be read"),
        ("data.parquet", b"PAR1 or not", "cannot be read"),
        ("data.parquet.gz", b"not gzip", "cannot be read"),
        ("data.csv", b"a\xff,b\nc,d\n", "line 1: not UTF-8"),
    ],
)
def test_files_that_cannot_be_read(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        list(open_table(tmp_path / name).records)
    assert str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(UserError, match="no file"):
        open_table(tmp_path / "data.txt")
    with pytest.raises(UserError, match="is a folder"):
        open_table(tmp_path)


def test_a_text_of_many_rows_is_in_memory_once(tmp_path):
    table = pandas.DataFrame({"a": ["long " * 1000] * 50 + ["other", None], "b": [[1]] * 52})
    table.to_parquet(tmp_path / "a.parquet")
    cells = [own for _, own in open_table(tmp_path / "a.parquet").records]
    assert [own[0] for own in cells] == [*(["long " * 1000] * 50), "other", None]
    assert len({id(own[0]) for own in cells[:50]}) == 1 and list(cells[51][1]) == [1]


def test_parquet_with_bytes_that_are_no_text_is_told(tmp_path):
    path = tmp_path / "a.parquet"
    pandas.DataFrame({"a": ["ZZZZZZZZ"]}).to_parquet(path, compression=None)
    path.write_bytes(path.read_bytes().replace(b"ZZZZZZZZ", b"ZZZ\xff\xffZZZ"))
    with pytest.raises(UserError, match="a.parquet cannot be read: 'utf-8' codec can't decode"):
        list(open_table(path).records)
