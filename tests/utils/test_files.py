"""Files are written whole or not at all."""

import errno
import json
import os

import pytest

from simcse_pl.utils.errors import UserError, WriteError
from simcse_pl.utils.files import (
    atomic_open,
    atomic_write,
    cached,
    finish_write,
    remove_half_written,
    write_json,
    write_text,
)
from tests.support.helpers import killed_while_moving


def write_inside(folder):
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config").write_text("1")


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_are_moved_into_place_and_replace_earlier_ones(tmp_path):
    folder = tmp_path / "a" / "b"
    with atomic_write(folder) as new:
        (new / "one").write_text("1")
        (new / "two").write_text("2")
        assert not (folder / "one").exists()
    with atomic_write(str(folder)) as new:
        (new / "two").write_text("new")
    assert contents(folder) == {"one": "1", "two": "new"}


def test_stale_files_are_removed_before_the_last_one_is_moved(tmp_path, monkeypatch):
    write_text(tmp_path / "head", "old")
    moved = []
    monkeypatch.setattr(os, "replace", lambda _, new: moved.append((new.name, (tmp_path / "head").exists())))
    with atomic_write(tmp_path, last="a", stale=["head", "b"]) as new:
        (new / "a").touch()
        (new / "b").touch()
    assert moved == [("b", False), ("a", False)]


@pytest.mark.parametrize("moves", range(3))
def test_a_killed_replacement_of_several_files_is_finished(tmp_path, moves):
    """The next write finishes it, too, and comes after it."""

    def write(version, **how):
        with atomic_write(tmp_path, last="settings", **how) as new:
            for name in ("settings", "vectors", "words"):
                (new / name).write_text(version)

    write("old")
    write_text(tmp_path / "head", "old")
    with killed_while_moving(tmp_path, moves):
        write("new", stale=["head", "words"])
    finish_write(tmp_path)
    assert contents(tmp_path) == dict.fromkeys(("settings", "vectors", "words"), "new")
    with killed_while_moving(tmp_path, moves):
        write("newer")
    write("newest")
    assert contents(tmp_path) == dict.fromkeys(("settings", "vectors", "words"), "newest")


@pytest.mark.parametrize("last", ["", "settings"])
def test_a_write_that_ends_before_it_moves_files_leaves_no_folders(last, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: os.read(-1, 1))  # an OSError
        with pytest.raises(WriteError), atomic_write(tmp_path, last) as new:
            write_inside(new)
    assert not list(tmp_path.iterdir())
    with atomic_write(tmp_path, last) as new:
        write_inside(new)
    assert contents(tmp_path / "1_Pooling") == {"config": "1"}


def test_files_have_the_mode_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic_write(tmp_path) as new:
            (new / "weights").touch(mode=0o600)  # as safetensors does
    finally:
        os.umask(before)
    assert (tmp_path / "weights").stat().st_mode & 0o777 == 0o640


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / "last.ckpt").write_text("whole")
    (tmp_path / ".saving-x1").mkdir()
    remove_half_written(tmp_path, tmp_path / "nowhere")
    assert contents(tmp_path) == {"last.ckpt": "whole"}


def test_a_folder_of_the_cache_is_written_once_without_what_a_killed_process_left(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    places = []

    def write(new):
        places.append(new)
        (new / "last").write_text("whole")

    folder = cached("kind", ("key", 1), "last", write)
    (folder / "last").unlink()
    (folder / ".saving-x1").mkdir()
    assert cached("kind", ("key", 1), "last", write) == cached("kind", ("key", 1), "last", write) == folder
    assert contents(folder) == {"last": "whole", "lock": ""} and len(places) == 2


def as_torch_does():
    try:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        raise RuntimeError("unexpected pos 576 vs 534") from None


def as_rust_does():
    raise RuntimeError("I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize("fail", [as_torch_does, as_rust_does])
def test_a_failed_write_names_the_folder_and_changes_nothing(tmp_path, fail):
    def write():
        with atomic_write(tmp_path) as new, atomic_write(new / "inner") as inner:
            (inner / "one").write_text("half")
            fail()

    (tmp_path / "one").write_text("old")
    with pytest.raises(WriteError, match=f"^cannot write {tmp_path}/inner: .*No space left on device"):
        write()
    with pytest.raises(WriteError, match=f"^cannot write {tmp_path}/one: "), atomic_open(tmp_path / "one"):
        fail()
    assert contents(tmp_path) == {"one": "old"}


def test_nan_and_infinity_are_null_in_the_file(tmp_path):
    write_json(tmp_path / "results.json", {"best": {"spearman": float("nan")}, "sts": [float("inf"), 0.5], "é": None})
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {"best": {"spearman": None}, "sts": [None, 0.5], "é": None}


def test_a_replacement_does_not_leave_its_folder(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "rc").write_text("mine")
    saved = tmp_path / "model" / ".saved-x" / "sub"
    saved.mkdir(parents=True)
    (saved / "rc").write_text("theirs")
    (saved.parent / ".stale").write_text("../home/rc")
    (tmp_path / "model" / "sub").symlink_to(tmp_path / "home")
    with pytest.raises(UserError, match="leads out of its folder"):
        finish_write(tmp_path / "model")
    assert (tmp_path / "home" / "rc").read_text() == "mine"
