"""Texts of odd characters are read back from each format; places in files."""

import csv
import gzip

import pandas
import pytest

from simcse_pl.data.readers.formats import open_table
from simcse_pl.data.readers.row_reader import iterate_sentences, read_rows

# Line breaks to Python's splitlines but not to a file, what is no character, what joins, and what runs the other way.
ODD = (
    *("\u0085", "\u2028", "\u2029", "\x1c", "\x1e", "\x0b", "\x0c", "\r", "\t", "\xa0", "\u3000", "\ufeff", "\x00"),
    *("\u200b", "\u200d", "\ufffd", "\U0010ffff", "\u00e9", "\U0001f469\u200d\U0001f467", "\u202e", "\u05e9\u05dc"),
    *('"', "'", ",", "\\", "[MASK]", "</s>", "#", "\u534a\u5e74"),
)


@pytest.mark.parametrize("name", ["d.txt", "d.txt.gz"])
def test_only_newlines_end_a_line_of_text(name, tmp_path):
    lines = [f"a {odd} b" for odd in ODD]
    text = ("\ufeff" + "\r\n".join(lines[:20]) + "\n \n" + "\n".join(lines[20:])).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert list(iterate_sentences(tmp_path / name)) == lines


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "d.jsonl", "d.parquet"])
def test_tables_are_read_back(name, tmp_path):
    rows, path = [(f"a {odd} b", f"c{odd}{odd}d") for odd in ODD], tmp_path / name
    frame = pandas.DataFrame(rows, columns=["x", "y"])
    if name.endswith("parquet"):
        frame.to_parquet(path)
    elif name.endswith("jsonl"):
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, quoting=csv.QUOTE_ALL)
    assert read_rows(path) == rows
    assert read_rows(path, ["y", "x"]) == [row[::-1] for row in rows]
    assert list(iterate_sentences(path, 0)) == [row[0] for row in rows]


@pytest.mark.parametrize(("first", "places"), [("", ["line 2", "line 5"]), ("sep=,\n", ["line 3", "line 6"])])
def test_line_numbers_count_lines_not_rows(first, places, tmp_path):
    (tmp_path / "data.csv").write_text(f'{first}text,label\n"one\nmore",two\n\nthree,four\n')
    assert [place for place, _ in open_table(tmp_path / "data.csv").records] == places


def test_the_keys_of_all_objects_are_the_columns(tmp_path):
    objects = ['{"a": "x", "b": 1}', '{"b": "y", "c": 2}']
    expected = [["x", 1, None], [None, "y", 2]]
    for name, text in (("d.jsonl", "\n\n".join(objects)), ("d.json", "[" + ",\n".join(objects) + "]")):
        (tmp_path / name).write_text(text)
        table = open_table(tmp_path / name)
        assert table.header == ["a", "b", "c"] and [cells for _, cells in table.records] == expected
