"""Rows: columns by name and position, labels, documents, invalid rows, the paper's files, the Hub."""

import itertools

import pytest

from simcse_pl.data.documents import documents_of
from simcse_pl.data.formats import Layout
from simcse_pl.data.rows import ReadOptions, iterate_rows, iterate_sentences, read_rows
from simcse_pl.data.sources import open_source
from simcse_pl.utils.errors import UserError


def test_an_empty_cell_is_an_empty_sentence_as_in_the_released_code(write_file, caplog):
    path = write_file("d.csv", "sent0,sent1,hard_neg\na,b,c\na,b,\n, ,c\n")
    assert read_rows(path, on_invalid_row="blank") == [("a", "b", "c"), ("a", "b", ""), ("", "", "c")]
    assert caplog.messages[-1] == f"{path}: 3 sentences are empty, invisible or with NUL, the first at line 3"


def test_sentences_that_cannot_be_seen_are_a_warning(write_file, caplog):
    lines = ["a b", "\u200b\u2060 \ufeff\u200b", "\x00", "a\x00b", "\u00ad", "\u200ba\xa0b\tc", "猫\ufe0f"]
    assert len(read_rows(write_file("d.txt", "\n".join(lines)))) == 7
    assert caplog.messages[-1].endswith("d.txt: 4 sentences are empty, invisible or with NUL, the first at line 2")


def test_the_other_columns_are_sentences(write_file):
    path = write_file("d.csv", "sentence1,gold_label,sentence2\na,neutral,b\nc, entailment ,d\n")
    for column in ("gold_label", 1):
        assert list(iterate_rows(path, ReadOptions(label_column=column))) == [
            (("a", "b"), "neutral"),
            (("c", "d"), "entailment"),
        ]


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        *((f"{name},question,answer", "n{}") for name in ("id", "pairID", "qid1", "sentence id", "Unnamed: 0", "")),
        ("", "q-{}"),
        ("", "{}.jpg#0"),
        ("a,question,answer", "{}:00"),
    ],
)
def test_a_column_of_ids_is_no_sentence_unless_it_is_chosen(names, ids, write_file, caplog):
    rows = [(ids.format(i), f"How is it in {i}?", f"Fine in {i}.") for i in range(100)]
    path = write_file("d.csv", f"{names}\n" + "".join(",".join(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="column .* has ids, not sentences: name those of sentences"):
        read_rows(path)
    assert read_rows(path, [1, 2]) == [row[1:] for row in rows] and not caplog.messages
    name = names.split(",")[0] if names else 0
    assert read_rows(path, [2, name]) == [row[::-2] for row in rows]
    assert caplog.messages == [f"{path}: column {name} has ids: are these the sentences?"]


@pytest.mark.parametrize("names", ["valid,covid,idea", "text,paid,hybrid", "0,1,2", "query,index_text,id_of_text"])
def test_names_that_are_not_those_of_ids(names, write_file):
    rows = [("A1", "B2", "C3"), ("one", "two", "three")]
    path = write_file("d.csv", f"{names}\n" + "".join(",".join(row) + "\n" for row in rows))
    assert read_rows(path, header=True) == rows


def test_a_column_that_is_named_as_labels_is_one_of_sentences_if_it_is_chosen(write_file):
    path = write_file("d.csv", "category,title\na b,c d\n")
    for columns in ([0, 1], ["category", 1]):
        assert read_rows(path, columns) == [("a b", "c d")]
    with pytest.raises(UserError, match="column category has labels"):
        read_rows(path)


def test_the_chosen_columns_have_sentences(write_file):
    path = write_file("d.csv", "text,title,score,text\na b,c,1,d\ne f,g,0,h\n")
    for columns, scores in (([0, 1], [1, 2]), (["title"], 1), ([], None)):
        with pytest.raises(UserError, match="^data.columns: .*d.csv needs columns of sentences"):
            read_rows(path, columns, score_column=scores)
    assert read_rows(path, [0, 0, 1]) == [("a b", "a b", "c"), ("e f", "e f", "g")]  # as mining in one text needs
    with pytest.raises(UserError, match="d.csv has several columns text: give the position of one"):
        read_rows(path, ["text"])
    assert read_rows(path, [3, "title"]) == [("d", "c"), ("h", "g")]


def test_blank_lines_separate_documents(write_file):
    """Several ones, with spaces in them, and at both ends."""
    path = write_file("d.txt", "\n\na\nb\n \n\n\t\nc\nd\n\ne\n\n")
    rows, documents = zip(*documents_of(open_source(path)), strict=True)
    assert list(rows) == read_rows(path)
    assert [len(list(group)) for _, group in itertools.groupby(documents)] == [2, 2, 1]
    assert len(set(documents)) == 3


def test_files_of_one_name_are_documents_of_their_own(tmp_path):
    for folder in "abc":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "wiki_00.txt").write_text(f"{folder} one.\n{folder} two.\n")
    documents = [document for _, document in documents_of(open_source(str(tmp_path / "*" / "wiki_00.txt")))]
    assert [len(list(group)) for _, group in itertools.groupby(documents)] == [2, 2, 2]
    for name, text in (("a.txt", "One.\n"), ("b.txt", "\nTwo.\nThree.\n")):  # the number of the line goes on
        (tmp_path / name).write_text(text)
    documents = [document for _, document in documents_of(open_source(str(tmp_path / "*.txt")))]
    assert [len(list(group)) for _, group in itertools.groupby(documents)] == [1, 2]


def test_rows_of_a_table_are_no_documents(write_file):
    path = write_file("d.txt", "a\tb\nc\td\n")
    with pytest.raises(UserError, match="does not show which sentences follow each other"):
        list(documents_of(open_source(path)))
    assert len(list(documents_of(open_source(path, Layout(format="text"))))) == 2


def test_sentences_are_lines_or_a_column(write_file):
    assert list(iterate_sentences(write_file("c.txt", "A dog.\n\nA cat.\nA dog.\n"))) == ["A dog.", "A cat.", "A dog."]
    path = write_file("c.csv", 'id,caption\n1,"A dog, a cat."\n2,Rain.\n')
    for column in ("caption", 1):
        assert list(iterate_sentences(path, column)) == ["A dog, a cat.", "Rain."]
    with pytest.raises(
        UserError, match="^column=NAME: .*c.csv has 2 columns.*, caption: choose the one with the sentences"
    ):
        list(iterate_sentences(path))
