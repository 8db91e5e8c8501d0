"""The account of rows, what counts as words, and what is refused before anything is read."""

from pathlib import Path

import pytest

from simcse_pl.data.prepare.conversion import BAD_ROW, Account, check_paths, clean, has_words, sound_rows, write_csv
from simcse_pl.utils.errors import UserError, WriteError
from simcse_pl.utils.text_files import Unreadable

A, B = Path("a.tsv"), Path("b.tsv")


@pytest.mark.parametrize("sentence", ["Yes.", "7", "n/a, he said", "犬が走る。", "É"])
def test_a_letter_or_a_digit_is_words(sentence):
    assert has_words(sentence)


@pytest.mark.parametrize("sentence", ["", ".", "-- ?!", "n/a", "N/A"])
def test_marks_alone_and_no_answer_are_no_words(sentence):
    assert not has_words(sentence)


def test_white_space_becomes_single_blanks():
    assert clean(" A dog\u0085 runs\r\n\tfast.\u00a0") == "A dog runs fast."


def test_the_lines_of_an_account_add_up_in_every_column():
    account = Account([A, B], ("kept", "left"))
    rows = [("line 1", "x"), ("line 2", Unreadable("odd")), ("line 3", "y")]
    for file in (A, B, A):
        for row in sound_rows(file, rows, "drop", account):
            account.add(file, "kept" if row == "x" else "left")
    frame = account.table("rows").frame
    assert list(frame[""]) == ["rows read", BAD_ROW, "kept", "left"]
    assert list(frame["a.tsv"]) == [6, 2, 2, 2]
    assert list(frame["b.tsv"]) == [3, 1, 1, 1]
    assert list(frame["all"]) == [9, 3, 3, 3]
    assert str(account) == "9 rows read: 3 damaged rows, 3 kept, 3 left"


def test_a_damaged_row_is_an_error_with_its_place():
    rows = [("line 1", "x"), ("line 2", Unreadable("odd"))]
    with pytest.raises(UserError) as error:
        list(sound_rows(A, rows, "error", Account([A], ())))
    assert str(error.value) == "a.tsv, line 2: odd (--on-invalid-row drop leaves such rows out)"


def test_files_of_one_name_are_told_apart_by_their_folders():
    files = [Path(name) for name in ("anli/R1/train.jsonl", "anli/R2/train.jsonl", "train.jsonl", "snli/snli.jsonl")]
    names = list(Account(files, ()).table("").frame)
    assert names == ["", "R1/train.jsonl", "R2/train.jsonl", "train.jsonl", "snli.jsonl", "all"]


def test_what_cannot_be_read_or_written_is_refused(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("x")
    for files, out, message in (
        ([tmp_path / "no.jsonl"], tmp_path / "out.csv", "no file"),
        ([source, tmp_path], tmp_path / "out.csv", "is a folder"),
        ([source], source, "written over itself"),
        ([source], tmp_path / "train.jsonl", "the file to write comes last"),
        ([source], tmp_path, "is a folder"),
    ):
        with pytest.raises(UserError, match=message) as error:
            check_paths(files, out)
        assert "\n" not in str(error.value)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    def rows():
        yield ("a", "b")
        raise UserError("damaged")

    out = tmp_path / "new" / "out.csv"
    assert write_csv(out, ("x", "y"), [('say "a", b', "c")], Account([], ())) == 1
    written = out.read_text(encoding="utf-8")
    assert written == 'x,y\n"say ""a"", b",c\n'
    with pytest.raises(UserError, match="damaged"):
        write_csv(out, ("x", "y"), rows(), Account([], ()))
    with pytest.raises(UserError, match=r"nothing to write to .*out.csv \(no rows read\)"):
        write_csv(out, ("x", "y"), [], Account([], ()))
    assert out.read_text(encoding="utf-8") == written
    assert list(out.parent.iterdir()) == [out]


def test_a_place_that_cannot_be_written_to_is_an_error_of_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(WriteError, match="cannot write .*file: File exists"):
        write_csv(tmp_path / "file" / "out.csv", ("x",), [("a",)], Account([], ()))
