"""Rows: columns by name and position, labels, documents, invalid rows, the paper's files, the Hub."""

import itertools

import pytest

from simcse_pl.data.readers.layout import Layout
from simcse_pl.data.readers.row_reader import documents_of, iterate_rows, iterate_sentences, read_rows
from simcse_pl.data.readers.sources import open_source
from simcse_pl.utils.errors import UserError

NLI = "sentence1,gold_label,sentence2\na,neutral,b\nc, entailment ,d\n"


def test_an_empty_cell_is_an_empty_sentence_as_in_the_released_code(write, caplog):
    path = write("d.csv", "sent0,sent1,hard_neg\na,b,c\na,b,\n, ,c\n")
    assert read_rows(path, on_invalid_row="blank") == [("a", "b", "c"), ("a", "b", ""), ("", "", "c")]
    assert caplog.messages[-1] == f"{path}: 3 empty cells are read as empty sentences"


@pytest.mark.parametrize(
    ("name", "text", "options", "expected"),
    [
        ("d.csv", NLI, {"label_column": "gold_label"}, [(("a", "b"), "neutral"), (("c", "d"), "entailment")]),
        ("d.tsv", "1\ta\n0\tb\n", {"label_column": 0}, [(("a",), "1"), (("b",), "0")]),
        ("d.jsonl", '{"x": "a", "y": 2}\n{"x": "b", "y": 0}\n', {"label_column": "y"}, [(("a",), "2"), (("b",), "0")]),
    ],
)
def test_each_row_has_its_label(name, text, options, expected, write):
    assert list(iterate_rows(write(name, text), **options)) == expected


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("a\nb\n\nc\n", [2, 1]),
        ("\n\na\nb\n \n\n\t\nc\nd\n\n", [2, 2]),  # several blank lines, spaces in them, at both ends
    ],
)
def test_blank_lines_separate_documents(text, lengths, tmp_path):
    path = tmp_path / "d.txt"
    path.write_text(text)
    rows, documents = zip(*documents_of(open_source(path)), strict=True)
    assert list(rows) == read_rows(path)
    assert [len(list(group)) for _, group in itertools.groupby(documents)] == lengths
    assert len(set(documents)) == len(lengths)


def test_rows_of_a_table_are_no_documents(write):
    path = write("d.txt", "a\tb\nc\td\n")
    with pytest.raises(UserError, match="does not show which sentences follow each other"):
        list(documents_of(open_source(path)))
    assert len(list(documents_of(open_source(path, Layout(format="text"))))) == 2


def test_an_accented_letter_is_one_character(write):
    assert read_rows(write("d.txt", "Cafe\u0301\n")) == [("Caf\u00e9",)]


def test_sentences_are_lines_or_a_column(tmp_path):
    (tmp_path / "c.txt").write_text("A dog.\n\nA cat.\nA dog.\n")
    (tmp_path / "c.csv").write_text('id,caption\n1,"A dog, a cat."\n2,Rain.\n')
    assert list(iterate_sentences(tmp_path / "c.txt")) == ["A dog.", "A cat.", "A dog."]
    for column in ("caption", 1):
        assert list(iterate_sentences(tmp_path / "c.csv", column)) == ["A dog, a cat.", "Rain."]
    with pytest.raises(UserError, match="c.csv has 2 columns.*, caption: choose the one with the sentences"):
        list(iterate_sentences(tmp_path / "c.csv"))
