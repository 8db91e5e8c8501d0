"""Rows: columns by name and position, labels, documents, invalid rows, the paper's files, the Hub."""

import itertools

import pytest

from simcse_pl.data.readers.row_reader import iterate_documents, iterate_rows, iterate_sentences, read_rows
from simcse_pl.utils.errors import UserError


@pytest.fixture
def file(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(None, ("a", "b", "c")), (["z", "x"], ("c", "a")), ([2, 0], ("c", "a")), (["y", 0], ("b", "a"))],
)
def test_columns_by_name_and_by_position(columns, expected, file):
    assert read_rows(file("data.csv", "x,y,z\na,b,c\n"), columns) == [expected]


NLI = "sentence1,gold_label,sentence2\na,neutral,b\nc, entailment ,d\n"


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("d.csv", "x,y\na,b\nc, \n", {}, "d.csv, line 3: column y is empty"),
        ("d.csv", "x,y\na,b,c\n", {}, "line 2: 3 columns where there should be 2"),
        ("d.jsonl", '{"x": "a"}\n{"x": 3}\n', {}, "line 2: column x is not text: 3"),
        ("d.jsonl", '{"x": "a\\ud83d"}\n', {}, "line 1: column x has a lone surrogate"),
        ("d.csv", "", {}, "d.csv has no rows"),
        ("d.csv", "x,y\na,\n", {"on_invalid_row": "drop"}, "d.csv has no valid rows"),
        ("d.csv", "x,y,score\na,b,4.2\nc,d,0\n", {}, "column score has numbers, not sentences"),
        ("d.csv", NLI, {"label_column": 1, "columns": [0, "gold_label"]}, "data.columns: .* other than 1, which"),
        ("d.csv", "x,label\na,\n", {"label_column": "label"}, "d.csv, line 2: column label is empty"),
        ("d.jsonl", '{"x": "a", "y": 0.5}\n', {"label_column": "y"}, "line 1: column y is not text: 0.5"),
    ],
)
def test_invalid_rows_and_columns_are_errors_with_the_place(name, text, options, message, file):
    with pytest.raises(UserError, match=message):
        list(iterate_rows(file(name, text), **options))


def test_invalid_rows_are_dropped_and_counted_in_one_warning(file, caplog):
    path = file("d.csv", "x,y\na,b\nc,\nd\ne,f\n,g\n")
    assert read_rows(path, on_invalid_row="drop") == [("a", "b"), ("e", "f")]
    assert caplog.messages == [f"{path}: 3 invalid rows dropped, the first at line 3: column y is empty"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.csv", "sent0,sent1,hard_neg\na,b,c\na,b,\n, ,c\n"),
        ("d.jsonl", '{"x": "a", "y": "b", "z": "c"}\n{"x": "a", "y": "b", "z": null}\n{"x": "", "y": " ", "z": "c"}\n'),
    ],
)
def test_an_empty_cell_is_an_empty_sentence_as_in_the_released_code(name, text, file, caplog):
    path = file(name, text)
    assert read_rows(path, on_invalid_row="blank") == [("a", "b", "c"), ("a", "b", ""), ("", "", "c")]
    assert caplog.messages == [f"{path}: 3 empty cells are read as empty sentences"]
    with pytest.raises(UserError, match="line 2: 2 columns where there should be 3"):
        read_rows(file("d.csv", "x,y,z\na,\n"), on_invalid_row="blank")
    with pytest.raises(UserError, match="line 2: column x is empty"):
        read_rows(file("d.csv", "x,y\n,\n"), on_invalid_row="blank")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.tsv", "A\tB\t4.2\nC\tD\t1.0\n"),
        ("d.csv", "a man plays the guitar,music\nx,y\n"),
        ("d.tsv", "半年。\t半\nx\ty\n"),
    ],
)
def test_a_first_row_that_does_not_look_like_names_is_not_a_header(name, text, file):
    path = file(name, text)
    with pytest.raises(UserError, match=f"{name}, line 1: '.*' does not look like a column name; set header=false"):
        read_rows(path, header=None)
    assert len(read_rows(path, [0, 1], header=False)) == 2
    assert len(read_rows(path, [0, 1], header=True)) == 1
    assert read_rows(file("d.csv", "Sentence 1,#2 String,\na,b,c\n"), header=None) == [("a", "b", "c")]


@pytest.mark.parametrize(
    ("name", "text", "options", "expected"),
    [
        ("d.csv", NLI, {"label_column": "gold_label"}, [(("a", "b"), "neutral"), (("c", "d"), "entailment")]),
        ("d.tsv", "1\ta\n0\tb\n", {"label_column": 0, "header": False}, [(("a",), "1"), (("b",), "0")]),
        ("d.jsonl", '{"x": "a", "y": 2}\n{"x": "b", "y": 0}\n', {"label_column": "y"}, [(("a",), "2"), (("b",), "0")]),
    ],
)
def test_each_row_has_its_label(name, text, options, expected, file):
    assert list(iterate_rows(file(name, text), **options)) == expected


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("a\nb\n\nc\n", [2, 1]),
        ("\n\na\nb\n \n\n\t\nc\nd\n\n", [2, 2]),  # several blank lines, spaces in them, at both ends
        ("a\nb\nc\n", [3]),
    ],
)
def test_blank_lines_separate_documents(text, lengths, tmp_path):
    path = tmp_path / "d.txt"
    path.write_text(text)
    rows, documents = zip(*iterate_documents(path), strict=True)
    assert list(rows) == read_rows(path)
    assert [len(list(group)) for _, group in itertools.groupby(documents)] == lengths
    assert len(set(documents)) == len(lengths)


def test_sentences_are_lines_or_a_column(tmp_path):
    (tmp_path / "c.txt").write_text("A dog.\n\nA cat.\nA dog.\n")
    (tmp_path / "c.csv").write_text('id,caption\n1,"A dog, a cat."\n2,Rain.\n')
    assert list(iterate_sentences(tmp_path / "c.txt")) == ["A dog.", "A cat.", "A dog."]
    for column in ("caption", 1):
        assert list(iterate_sentences(tmp_path / "c.csv", column)) == ["A dog, a cat.", "Rain."]
    with pytest.raises(UserError, match="c.csv has 2 columns: choose the one with the sentences"):
        list(iterate_sentences(tmp_path / "c.csv"))
