"""Several files as one source, and other encodings."""

import gzip

import pytest

from simcse_pl.data.readers.layout import Layout
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.data.readers.sources import fingerprint
from simcse_pl.utils.errors import UserError


@pytest.fixture
def folder(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.tsv").write_text(f"text\tlabel\nA dog {i}.\tx{i}\n")
    (tmp_path / "README.md").write_text("No data.")
    return tmp_path


def test_a_list_a_pattern_and_a_folder_are_the_rows_of_all_files(folder):
    files = [str(folder / f"{i}.tsv") for i in range(3)]
    expected = [(f"A dog {i}.", f"x{i}") for i in range(3)]
    for source in (files, folder, str(folder / "[0-2].tsv")):
        assert read_rows(source) == expected
        assert fingerprint(source) == fingerprint(files)
    assert fingerprint(files) not in (fingerprint(files[:2]), fingerprint(files[::-1]))
    (folder / "1.tsv").write_text("text\nA dog.\n")
    with pytest.raises(UserError, match="1.tsv has 1 column, .* text, but .*0.tsv has 2 columns"):
        read_rows(folder)
    (folder / "1.tsv").write_text("text\tlabel\nA dog.\t\n")
    with pytest.raises(UserError, match="3 files, 1.tsv, line 2: column label is empty"):
        read_rows(folder)
    with pytest.raises(UserError, match="no files .*[*].csv"):
        read_rows(str(folder / "*.csv"))


CHINESE = "花呗怎么还款\t怎样还花呗\n一个男人在弹吉他。\t他在弹。\n" * 5
GERMAN = "Ein Mann fährt über die Brücke.\tEr fährt mit dem Auto nach München.\n" * 5


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("text", "encoding", "likely"),
    [(CHINESE, "gb18030", "gb18030"), (GERMAN, "windows-1252", "cp1252"), (CHINESE, "utf-16", "utf_16")],
)
def test_an_encoding_is_named_and_can_be_set(text, encoding, likely, zipped, tmp_path):
    path = tmp_path / ("a.tsv.gz" if zipped else "a.tsv")
    content = text.replace("\n", "\r\n").encode(encoding)
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(UserError, match=f"line 1: not UTF-8 .*; if it is {likely}, say so by data.encoding"):
        read_rows(path)
    expected = [tuple(line.split("\t")) for line in text.splitlines()]
    assert read_rows(path, layout=Layout(encoding=encoding)) == expected
