"""Files that appear whole or not at all."""

import contextlib
import errno
import os

import pytest
from safetensors import SafetensorError

from simcse_pl.utils.errors import UserError, WriteError
from simcse_pl.utils.files import atomic_write, read_json, remove_half_written


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_are_moved_into_place_and_replace_those_before(tmp_path):
    folder = tmp_path / "a" / "b"
    with atomic_write(folder) as new:
        (new / "one").write_text("1")
        (new / "two").write_text("2")
        assert not (folder / "one").exists()
    with atomic_write(str(folder)) as new:
        (new / "two").write_text("new")
    assert contents(folder) == {"one": "1", "two": "new"}


def test_files_have_the_mode_that_the_umask_leaves(tmp_path):
    """As safetensors does, whose files only the owner can read."""
    before = os.umask(0o027)
    try:
        with atomic_write(tmp_path) as new:
            (new / "weights").touch(mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "weights").stat().st_mode & 0o777 == 0o640


def test_nothing_changes_where_writing_fails(tmp_path):
    (tmp_path / "one").write_text("old")
    with contextlib.suppress(OSError), atomic_write(tmp_path) as new:
        (new / "one").write_text("half")
        raise OSError("disk full")
    assert contents(tmp_path) == {"one": "old"}


def test_the_last_is_moved_last(tmp_path, monkeypatch):
    moved = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (moved.append(b.name), replace(a, b)))
    with atomic_write(tmp_path, last="b") as new:
        for name in "cba":
            (new / name).write_text("")
    assert moved == ["a", "c", "b"]


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    (tmp_path / "last.ckpt").write_text("whole")
    half = tmp_path / ".saving-x1"
    half.mkdir()
    (half / "last.ckpt").write_text("ha")
    remove_half_written(tmp_path, tmp_path / "nowhere")
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize(
    "content", [b"{", b"", b"\xff", b"[" * 100_000, b'["\\ud800"]', b'{"\\uDC00": 1}', b"9" * 5000]
)
def test_what_is_no_json_is_told_in_one_line(content, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match="a.json is damaged, or no JSON: ") as error:
        read_json(tmp_path / "a.json")
    assert "\n" not in str(error.value)


def test_json_with_whole_characters_is_read(tmp_path):
    (tmp_path / "a.json").write_text('["\\ud83d\\ude00", "\\\\ud800"]')
    assert read_json(tmp_path / "a.json") == ["😀", "\\ud800"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "x"), "a/one: No space left on device"),  # what Python says in the middle of a file
        (SafetensorError("I/O error: No space left on device (os error 28)"), "a: No space left on device"),
    ],
)
def test_what_the_system_refuses_is_named_by_its_final_place(tmp_path, error, said):
    def write():
        with atomic_write(tmp_path / "a") as new:
            (new / "one").write_text("half")
            raise error

    with pytest.raises(WriteError) as told:
        write()
    assert str(told.value) == f"cannot write {tmp_path}/{said}"
    assert not list((tmp_path / "a").iterdir())


def test_what_goes_wrong_elsewhere_stays_what_it_is(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path):
        (tmp_path.parent / "nowhere" / "x").read_text()
    with pytest.raises(UserError, match="no"), atomic_write(tmp_path):
        raise UserError("no") from OSError(errno.ENOSPC, "x")
