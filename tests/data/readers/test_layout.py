"""How a file is written, found from its content: rows in text files, separators, quotation marks, headers."""

import csv

import pandas
import pytest

from simcse_pl.data.readers.layout import Layout
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.data.readers.sources import open_source

QUOTED = [('He said "hi".', "Greeting"), ('"Yes."', "A\tyes"), ("Two\nlines", "One")]


@pytest.mark.parametrize(
    "lines", [["One tab\there.", "None here."], ["a, b", "c, d"], ["{braces} are text", "[MASK] is too"]]
)
def test_sentences_are_not_rows(lines, write):
    assert read_rows(write("a.txt", "\n".join(lines))) == [(line,) for line in lines]


@pytest.mark.parametrize("separator", ["\t", ";", ","])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_what_pandas_writes_is_read_back(name, separator, quoting, tmp_path):
    pandas.DataFrame(QUOTED, columns=["a", "b"]).to_csv(tmp_path / name, sep=separator, quoting=quoting, index=False)
    assert read_rows(tmp_path / name, ["a", "b"]) == QUOTED


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("sent0\tsent1\nA dog runs.\tAn animal moves.\n", True),
        ("Sentence 1\t#2 String\na\tb\n", True),
        ("句子1\t句子2\n花呗怎么还款\t怎样还花呗\n", True),
        ("frage\tantwort\nWo ist der Hund?\tIm Garten hinter dem Haus\n", True),
        ("甲\t乙\t丙\n花呗怎么还款\t怎样还花呗\t1\n可以\t行\t0\n", True),
        ("标准问\t相似问\n花呗怎么还款\t怎样还花呗\n", True),
        ("花呗怎么还款\t怎样还花呗\n可以\t行\n", False),
        ("订单问题\t物流问题\n可以\t行\n", False),
        ("半年。\t半\nx\ty\n", False),
        ("花呗\t借呗\t1\n可以\t行\t0\n", False),
        ("a dog\ta cat\nthe dog\tthe cat\n", False),
        ("Hello\tWorld\nYes\tNo\n", False),
        ("A\tB\t4.2\nC\tD\t1.0\n", False),
    ],
)
def test_a_header_is_found(text, header, write, caplog):
    caplog.set_level("INFO")
    path = write("a.tsv", text)
    assert (open_source(str(path)).header is not None) == header
    assert caplog.messages[0].endswith("with the column names " + ", ".join(text.split("\n")[0].split("\t"))) == header
    for given in (True, False):
        assert (open_source(str(path), Layout(header=given)).header is not None) == given
    assert open_source(str(path), columns=["text"]).header is not None
