"""Rows of any text are read back from each format; any bytes give rows or an error of one line."""

import csv
import gzip
import io
import json

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcse_pl.data.readers.row_reader import (
    iterate_sentences,
    read_rows,
)
from simcse_pl.utils.errors import UserError
from tests.properties.strategies import sentences, texts

ENDS = st.sampled_from(["\n", "\r\n"])
PACKED = st.sampled_from(["", ".gz"])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Write bytes to a file of a name, gzipped where the name says so."""
    folder = tmp_path_factory.mktemp("files")

    def write(name, content):
        (folder / name).write_bytes(gzip.compress(content, 0) if name.endswith(".gz") else content)
        return folder / name

    return write


def tables(cells, most_columns=4):
    return st.integers(1, most_columns).flatmap(
        lambda width: st.lists(st.tuples(*[cells] * width), min_size=1, max_size=6)
    )


def names_of(rows):
    return [f"column {i}" for i in range(len(rows[0]))]


def one_end(row):
    """A row as csv files give it: a line ends inside quotation marks, too, in \\r\\n or \\n alike."""
    return tuple(cell.replace("\r\n", "\n") for cell in row)


def as_csv(rows):
    written = io.StringIO(newline="")
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows([names_of(rows), *rows])
    return written.getvalue().encode()


def as_jsonl(rows):
    lines = (json.dumps(dict(zip(names_of(rows), row, strict=True))) for row in rows)
    return "".join(line + "\n" for line in lines).encode()


def as_parquet(rows):
    written = io.BytesIO()
    columns = [pyarrow.array(column, pyarrow.string()) for column in zip(*rows, strict=True)]
    pyarrow.parquet.write_table(pyarrow.table(columns, names_of(rows)), written)
    return written.getvalue()


@given(lines=st.lists(texts(without="\n"), max_size=8), end=ENDS, last=st.booleans(), bom=st.booleans(), packed=PACKED)
def test_only_newlines_end_a_line_of_text(file, lines, end, last, bom, packed):
    content = "\ufeff" * bom + end.join(lines) + end * last
    path = file(f"d.txt{packed}", content.encode())
    kept = [line.removeprefix("\ufeff") if i == 0 and not bom else line for i, line in enumerate(lines)]
    expected = [line.strip() for line in kept if line.strip()]
    if expected:
        assert list(iterate_sentences(path)) == expected
        return
    with pytest.raises(UserError, match="has no rows"):
        list(iterate_sentences(path))


@given(rows=tables(sentences()), packed=PACKED)
@pytest.mark.parametrize(("kind", "write"), [("csv", as_csv), ("jsonl", as_jsonl), ("parquet", as_parquet)])
def test_tables_are_read_back(file, kind, write, rows, packed):
    path = file(f"d.{kind}{packed if kind != 'parquet' else ''}", write(rows))
    rows = list(map(one_end, rows)) if kind == "csv" else rows
    assert read_rows(path) == rows
    assert read_rows(path, list(reversed(names_of(rows)))) == [row[::-1] for row in rows]
    assert list(iterate_sentences(path, 0)) == [row[0] for row in rows]


@given(
    parts=st.lists(
        st.binary(max_size=20) | texts(max_size=4).map(str.encode) | st.sampled_from([b"\n", b'"', b"\xff"])
    ),
    kind=st.sampled_from(["txt", "csv", "tsv", "jsonl", "parquet", "txt.gz", "csv.gz"]),
    on_invalid_row=st.sampled_from(["error", "drop"]),
    packed=st.booleans(),
    header=st.booleans(),
)
def test_any_bytes_give_rows_or_an_error_of_one_line(file, parts, kind, on_invalid_row, packed, header):
    content = b"".join(parts)
    path = file(f"d.{kind}", content)
    if kind.endswith("gz") and not packed:
        path.write_bytes(content)
    try:
        rows = read_rows(path, on_invalid_row=on_invalid_row, header=header)
    except UserError as error:
        message = str(error)
        assert str(path) in message
    else:
        assert rows and all(cell == cell.strip() != "" for row in rows for cell in row)
        assert {len(row) for row in rows} == {len(rows[0])}
