"""Several files as one source."""

import os

import pytest

from simcse_pl.data import sources
from simcse_pl.data.rows import read_rows
from simcse_pl.data.sources import content_hash
from simcse_pl.utils.errors import UserError


@pytest.fixture
def folder(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.tsv").write_text(f"text\ttitle\nA dog {i}.\tx{i}\n")
    for name in ("README.md", "readme.txt", "LICENSE.txt"):
        (tmp_path / name).write_text("No data.")
    return tmp_path


def test_a_list_a_pattern_and_a_folder_are_the_rows_of_all_files(folder):
    files = [str(folder / f"{i}.tsv") for i in range(3)]
    expected = [(f"A dog {i}.", f"x{i}") for i in range(3)]
    for source in (files, folder, str(folder / "[0-2].tsv")):
        assert read_rows(source) == expected
        assert content_hash(source) == content_hash(files)
    assert content_hash(files) not in (content_hash(files[:2]), content_hash(files[::-1]))
    (folder / "1.tsv").write_text("text\nA dog.\n")
    with pytest.raises(UserError, match="1.tsv has 1 column, .* text, but the first file has column names text, title"):
        read_rows(folder)
    (folder / "1.tsv").write_text("text\ttitle\nA dog.\t\n")
    with pytest.raises(UserError, match="3 files, 1.tsv, line 2: column title is empty"):
        read_rows(folder)
    (folder / "a.txt").write_text("A dog.\n")
    with pytest.raises(UserError, match="0.tsv has 2 columns .*, but the first file has 1 column without names"):
        read_rows([folder / "a.txt", folder / "0.tsv"])
    for empty in (None, " ", []):
        with pytest.raises(UserError, match="^the name of a file is empty: is a variable"):
            read_rows(empty)
    with pytest.raises(UserError, match="no files .*[*].csv"):
        read_rows(str(folder / "*.csv"))


def test_a_checksum_is_computed_once_and_again_if_a_file_may_have_changed(folder, monkeypatch):
    computed = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(sources, "sha256_of", lambda path: computed.append(path.name) or path.read_text())
    content_hash(folder)
    assert content_hash(folder) and computed == ["0.tsv", "1.tsv", "2.tsv"] * 2  # just written
    monkeypatch.setattr(sources, "_RECENT", 0)
    first = [content_hash(folder) for _ in range(3)][-1]
    assert len(computed) == 9
    path = folder / "1.tsv"
    times = path.stat()
    path.write_text("text\ttitle\nA cat 1.\tx1\n")  # of the same size
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert content_hash(folder) != first and computed[9:] == ["1.tsv"]
