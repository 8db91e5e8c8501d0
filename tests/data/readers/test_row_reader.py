"""Rows: columns by name and position, bad rows, the paper's own files, the hub."""

import gzip
import itertools
import logging

import pytest

from simcse_pl.data.readers import row_reader as readers
from simcse_pl.data.readers.row_reader import (
    iterate_documents,
    iterate_labeled_rows,
    read_rows,
    read_sentences,
    with_warning,
)
from simcse_pl.utils.errors import UserError


def read_labeled_rows(*arguments, **options):
    return tuple(map(list, zip(*with_warning(iterate_labeled_rows(*arguments, **options)), strict=True)))


def read_documents(*arguments, **options):
    return tuple(map(list, zip(*with_warning(iterate_documents(*arguments, **options)), strict=True)))


@pytest.fixture
def file(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_papers_files_load_as_they_are(file):
    nli = file("nli_for_simcse.csv", 'sent0,sent1,hard_neg\n"One, two.",A b.,C d.\nE f.,G h.,I j.\n')
    assert read_rows(nli) == [("One, two.", "A b.", "C d."), ("E f.", "G h.", "I j.")]
    wiki = file("wiki1m_for_simcse.txt", ' YMCA in South Australia\nSouth Australia (SA)  "has a" unique place.\n')
    assert read_rows(wiki) == [("YMCA in South Australia",), ('South Australia (SA)  "has a" unique place.',)]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(None, ("a", "b", "c")), (["z", "x"], ("c", "a")), ([2, 0], ("c", "a")), ([1], ("b",)), (["y", 0], ("b", "a"))],
)
def test_columns_by_name_and_by_position(columns, expected, file):
    assert read_rows(file("data.csv", "x,y,z\na,b,c\n"), columns) == [expected]


def test_no_header(file):
    path = file("data.tsv", "a\tb\nc\td\n")
    assert read_rows(path, header=False) == [("a", "b"), ("c", "d")]
    assert read_rows(path, [1], header=False) == [("b",), ("d",)]


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("d.csv", "x,y\na,b\nc,\n", {}, "d.csv, line 3: column y is empty"),
        ("d.csv", "x,y\na,b\nc, \n", {}, "d.csv, line 3: column y is empty"),
        ("d.csv", "x,y\na,b,c\n", {}, "line 2: 3 columns where there should be 2"),
        ("d.csv", "x,y\na\n", {}, "line 2: 1 columns where there should be 2"),
        ("d.tsv", "a\tb\nc\n", {"header": False}, "line 2: 1 columns where there should be 2"),
        ("d.tsv", "a\tb\n", {"header": False, "columns": [2]}, "line 1: column 2 is wanted, and there are 2"),
        ("d.jsonl", '{"x": "a"}\n{"x": 3}\n', {}, "line 2: column x holds no text but 3"),
        ("d.jsonl", '{"x": "a"}\n{"y": "b"}\n', {}, "line 2: column x holds no text but None"),
        ("d.jsonl", '{"x": "a\\ud83d"}\n', {}, r"line 1: column x holds half a character \('a\\ud83d'\)"),
        ("d.jsonl", f'{{"x": {"[" * 400 + "]" * 400}}}\n', {}, r"column x holds no text but \[{7}\.\.\.\]{7} "),
        ("d.csv", "x,y\na,b\n", {"columns": ["w"]}, "no column w in .*d.csv, which has the columns x, y"),
        ("d.csv", "x,y\na,b\n", {"columns": [2]}, "no column 2 in"),
        ("d.csv", "x,y\na,b\n", {"columns": [-1]}, "no column -1 in"),
        ("d.txt", "a\n", {"columns": ["x"]}, "no column x in .*columns without names: count them from 0"),
        ("d.csv", "x,y\n", {}, "d.csv has no rows"),
        ("d.csv", "", {}, "d.csv has no rows"),
        ("d.txt", "\n \n", {}, "d.txt has no rows"),
        ("d.jsonl", "", {}, "d.jsonl has no rows"),
        ("d.txt", "a\n", {"on_invalid_row": "skip"}, "data.on_invalid_row=skip: choose one of error, drop, blank"),
        ("d.csv", "x,y\na,\n", {"on_invalid_row": "drop"}, "d.csv has no rows that could be used"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(name, text, options, message, file):
    with pytest.raises(UserError, match=message) as error:
        read_rows(file(name, text), **options)
    assert "\n" not in str(error.value)


def test_bad_rows_are_dropped_and_counted_in_one_warning(file, caplog):
    path = file("d.csv", "x,y\na,b\nc,\nd\ne,f\n,g\n")
    with caplog.at_level(logging.WARNING):
        assert read_rows(path, on_invalid_row="drop") == [("a", "b"), ("e", "f")]
    (record,) = caplog.records
    assert record.getMessage() == f"{path}: 3 bad rows dropped, the first at line 3: column y is empty"


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
    assert [record.getMessage() for record in caplog.records] == [f"{path}: 3 empty cells are read as empty sentences"]
    with pytest.raises(UserError, match="line 2: 2 columns where there should be 3"):
        read_rows(file("d.csv", "x,y,z\na,\n"), on_invalid_row="blank")
    with pytest.raises(UserError, match="line 2: column x is empty"):
        read_rows(file("d.csv", "x,y\n,\n"), on_invalid_row="blank")


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        (
            "d.csv",
            "x,y,score\na,b,4.2\nc,d,0\n",
            {},
            "d.csv: column score holds numbers, not sentences .in training",
        ),
        (
            "d.tsv",
            "a\tb\t4,2\n" * 200,
            {"header": False},
            r"column 2 .*data.columns=\[.*data.label_column a col",
        ),
        ("d.csv", "x,y\na,1\nb,2\n", {"columns": ["y"]}, "column y holds numbers, not sentences"),
        ("d.csv", "id,x,y\n1,a,b\n2,c,d\n", {}, "column id holds numbers, not sentences"),
    ],
)
def test_scores_are_not_trained_on_as_sentences(name, text, options, message, file):
    with pytest.raises(UserError, match=message):
        read_rows(file(name, text), **options)
    assert read_rows(file(name, text), [0 if name == "d.tsv" else "x"], header=options.get("header", True))
    assert read_rows(file("some.csv", "x,y\na,1\nb,two\n")) == [("a", "1"), ("b", "two")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("d.tsv", "A\tB\t4.2\nC\tD\t1.0\n"),
        ("d.csv", 'A man plays.,"Two, three."\nx,y\n'),
        ("d.csv", "a man plays the guitar,music\nx,y\n"),
        ("d.tsv", "半年。\t半\nx\ty\n"),
    ],
)
def test_a_first_row_unlike_names_is_no_header(name, text, file):
    path = file(name, text)
    with pytest.raises(UserError, match=f"{name}, line 1: '.*' does not look like a column name; set data.header"):
        read_rows(path, header=None)
    assert len(read_rows(path, [0, 1], header=False)) == 2
    assert len(read_rows(path, [0, 1], header=True)) == 1
    assert read_rows(file("d.csv", "Sentence 1,#2 String,\na,b,c\n"), header=None) == [("a", "b", "c")]


def test_a_hub_file_is_downloaded_and_read(monkeypatch, file):
    path = file("rows.csv", "x,y\na,b\n")
    asked = []
    monkeypatch.setattr(readers.hub, "download", lambda *a, **k: asked.append((a, k)) or path)
    assert read_rows("hf://datasets/owner/name/folder/rows.csv") == [("a", "b")]
    assert asked == [(("owner/name", "folder/rows.csv"), {"repo_type": "dataset"})]


def test_a_hub_dataset_is_loaded_by_split(monkeypatch):
    import datasets

    monkeypatch.setattr(readers.hub, "unavailable", lambda *repository: None)
    table = datasets.Dataset.from_dict({"x": ["a", "c"], "y": ["b", "d"]})
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: {("owner/name", "dev"): table}[name, split])
    assert read_rows("hf://datasets/owner/name", ["y"], split="dev") == [("b",), ("d",)]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hf://datasets/owner", "write hf://datasets/OWNER/NAME"),
        ("hf://datasets/no-such/data", "dataset no-such/data, split train, cannot be loaded: it is not in the local"),
        (
            "hf://datasets/no-such/data/rows.csv",
            "no rows.csv in no-such/data in the local cache, and the Hub returned: .*offline mode is enabled",
        ),
    ],
)
def test_without_the_hub_one_line_says_so(source, message):
    with pytest.raises(UserError, match=message) as error:
        read_rows(source)
    assert "\n" not in str(error.value)


NLI = "sentence1,gold_label,sentence2\na,neutral,b\nc, entailment ,d\n"


@pytest.mark.parametrize(
    ("label", "columns", "expected"),
    [
        ("gold_label", None, [("a", "b"), ("c", "d")]),
        (1, None, [("a", "b"), ("c", "d")]),
        ("gold_label", ["sentence2", "sentence1"], [("b", "a"), ("d", "c")]),
        (1, [2], [("b",), ("d",)]),
    ],
)
def test_labels_stand_apart_from_the_sentences(label, columns, expected, file):
    path = file("nli.csv", NLI)
    assert read_labeled_rows(path, label, columns) == (expected, ["neutral", "entailment"])


def test_labels_of_a_file_without_names(file):
    path = file("nli.tsv", "1\ta\tb\n0\tc\td\n")
    assert read_labeled_rows(path, 0, header=False) == ([("a", "b"), ("c", "d")], ["1", "0"])


def test_labels_that_are_numbers(file):
    path = file("nli.jsonl", '{"x": "a", "label": 2, "y": "b"}\n{"x": "c", "label": 0, "y": "d"}\n')
    assert read_labeled_rows(path, "label") == ([("a", "b"), ("c", "d")], ["2", "0"])


def test_rows_without_a_label_are_bad_rows(file, caplog):
    path = file("nli.csv", "x,label,y\na,,b\nc,no,d\n")
    assert read_labeled_rows(path, "label", on_invalid_row="drop") == ([("c", "d")], ["no"])
    assert "1 bad rows dropped, the first at line 2: column label is empty" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("d.csv", NLI, {"label_column": "label"}, "no column label in .*d.csv, which has the columns sentence1, gold"),
        ("d.csv", NLI, {"label_column": 3}, "no column 3 in"),
        ("d.csv", NLI, {"label_column": 1, "columns": [0, "gold_label"]}, "data.label_column=1 is one of data.columns"),
        ("d.csv", NLI, {"label_column": 1, "columns": ["w"]}, "no column w in"),
        ("d.csv", "x,label\na,\n", {"label_column": "label"}, "d.csv, line 2: column label is empty"),
        (
            "d.csv",
            "label\nno\n",
            {"label_column": "label"},
            "d.csv has no column of sentences beside data.label",
        ),
        ("d.txt", "a\nb\n", {"label_column": 0}, "d.txt has no column of sentences beside data.label_column=0"),
        ("d.tsv", "a\tb\n", {"label_column": 2, "header": False}, "line 1: column 2 is wanted, and there are 2"),
        ("d.tsv", "a\tb\nc\n", {"label_column": 1, "header": False}, "line 2: 1 columns where there should be 2"),
        ("d.jsonl", '{"x": "a", "y": 0.5}\n', {"label_column": "y"}, "line 1: column y holds no text but 0.5"),
        ("d.jsonl", '{"x": "a", "y": 1}\nnonsense\n', {"label_column": "y"}, "line 2: not JSON"),
        ("d.jsonl", '{"x": 3, "y": 1}\n', {"label_column": "y"}, "line 1: column x holds no text but 3"),
        ("d.csv", "x,label\n", {"label_column": "label"}, "d.csv has no rows"),
    ],
)
def test_what_is_wrong_with_labels_is_told_in_one_line(name, text, options, message, file):
    with pytest.raises(UserError, match=message) as error:
        read_labeled_rows(file(name, text), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("a\nb\n\nc\n", [2, 1]),
        ("\n\na\nb\n \n\n\t\nc\nd\n\n", [2, 2]),  # several blank lines, spaces in them, at both ends
        ("a\r\nb\r\n\r\nc\r\n", [2, 1]),
        ("a\nb\nc\n", [3]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_blank_lines_separate_documents(text, lengths, packed, tmp_path):
    path = tmp_path / ("d.txt.gz" if packed else "d.txt")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    rows, documents = read_documents(path)
    assert rows == read_rows(path)
    assert [len(list(group)) for _, group in itertools.groupby(documents)] == lengths
    assert len(set(documents)) == len(lengths)


def test_a_bad_line_of_a_document_is_as_if_it_were_not_there(tmp_path):
    (tmp_path / "d.txt").write_bytes(b"a\ncaf\xe9\nb\n\nc\n")
    rows, documents = read_documents(tmp_path / "d.txt", on_invalid_row="drop")
    assert rows == [("a",), ("b",), ("c",)]
    assert documents[0] == documents[1] != documents[2]
    with pytest.raises(UserError, match="line 2: not UTF-8"):
        read_documents(tmp_path / "d.txt")


@pytest.mark.parametrize("name", ["d.csv", "d.tsv", "d.jsonl"])
def test_only_text_files_keep_documents_apart(name, file):
    with pytest.raises(UserError, match=f"{name} does not tell which sentences follow.*give a .txt") as error:
        read_documents(file(name, '{"x": "a"}\n'))
    assert "\n" not in str(error.value)


def test_a_dataset_of_the_hub_keeps_no_documents_apart(monkeypatch):
    import datasets

    monkeypatch.setattr(readers.hub, "unavailable", lambda *repository: None)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: datasets.Dataset.from_dict({"x": ["a"]}))
    with pytest.raises(UserError, match="hf://datasets/owner/name does not tell which sentences follow"):
        read_documents("hf://datasets/owner/name")


def test_a_text_file_without_sentences_has_no_documents(file):
    with pytest.raises(UserError, match="d.txt has no rows"):
        read_documents(file("d.txt", "\n\n"))


def test_sentences_are_lines_or_a_column(tmp_path):
    (tmp_path / "c.txt").write_text("A dog.\n\nA cat.\nA dog.\n")
    (tmp_path / "c.csv").write_text('id,caption\n1,"A dog, a cat."\n2,Rain.\n')
    assert read_sentences(tmp_path / "c.txt") == ["A dog.", "A cat.", "A dog."]
    for column in ("caption", 1):
        assert read_sentences(tmp_path / "c.csv", column) == ["A dog, a cat.", "Rain."]
    with pytest.raises(UserError, match="c.csv has 2 columns: say which"):
        read_sentences(tmp_path / "c.csv")
