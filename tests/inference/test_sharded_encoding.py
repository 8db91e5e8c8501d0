"""Shards are encoded once, by several processes or after an interruption, and become one file."""

import errno
import multiprocessing
import os
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.progress import Progress

from simcse_pl.inference.sharded_encoding import ShardFolder, encode_in_processes
from simcse_pl.utils.errors import UserError, WriteError

SENTENCES = [f"sentence {'x' * number}" for number in range(7)]
MANIFEST = {"shard_size": 2, "sentences": 7, "dim": 3, "pooling": "cls"}
DEVICES = ["first", "second"]


def encode(sentences):
    return np.array([[len(sentence), 0, 1] for sentence in sentences], dtype=np.float32)


def load(device):
    return encode


def load_and_wait_for_the_other(folder, device):
    (folder / device).touch()
    while len(list(folder.iterdir())) < len(DEVICES):
        time.sleep(0.01)
    return encode


def load_threads(device):
    return lambda sentences: np.array(torch.get_num_threads())


def load_or_fail(device):
    raise UserError(f"device={device}: not here")


class Recorded:
    """Encode in this process, and record the sentences."""

    def __init__(self):
        self.sentences = []

    def __call__(self, shards):
        for number, sentences in shards:
            self.sentences += sentences
            yield number, encode(sentences)


def write_text(file, chunks, dim):
    for sentences, vectors in chunks:
        assert vectors.shape == (len(sentences), dim)
        file.writelines(f"{s} {v[0]:.0f}\n".encode() for s, v in zip(sentences, vectors, strict=True))


JOINED = "".join(f"{sentence} {len(sentence)}\n" for sentence in SENTENCES)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "out.shards"


def test_each_part_encodes_its_shards_and_the_shards_become_one_file(folder, tmp_path):
    for part, expected in ((range(1, 4, 2), [2, 3, 6]), (range(4), [0, 1, 4, 5]), (range(4), [])):
        recorded, shards = Recorded(), ShardFolder(folder, MANIFEST)
        shards.encode(iter(SENTENCES), recorded, part)
        assert recorded.sentences == [SENTENCES[number] for number in expected]
    (folder / ".saving-killed").mkdir()
    (folder / "joined").mkdir()
    (folder / "joined" / "out.ranges.npy").touch()  # of a command with other options that was killed
    shards.join(iter(SENTENCES), tmp_path / "out", write_text)
    assert (tmp_path / "out").read_text() == JOINED and list(tmp_path.iterdir()) == [tmp_path / "out"]


@pytest.mark.parametrize("name", ["out[1].npy", "000000.npy", "manifest.json"])
def test_any_name_is_joined_with_the_files_beside_it(name, folder, tmp_path):
    def write(file, chunks, dim):
        Path(f"{file.name}.ranges.npy").touch()
        write_text(file, chunks, dim)

    shards = ShardFolder(folder, MANIFEST)
    shards.encode(iter(SENTENCES), Recorded(), range(4))
    shards.join(iter(SENTENCES), tmp_path / name, write)
    assert (tmp_path / name).read_text() == JOINED
    assert {path.name for path in tmp_path.iterdir()} == {name, f"{name}.ranges.npy"}


def test_the_progress_bar_begins_with_the_shards_in_the_folder(folder, monkeypatch):
    shards, added = ShardFolder(folder, MANIFEST), []
    shards.encode(iter(SENTENCES), Recorded(), range(2, 4))
    monkeypatch.setattr(Progress, "add_task", lambda bar, what, **options: added.append(options) or 0)
    monkeypatch.setattr(Progress, "advance", lambda bar, task, by: added.append(by))
    shards.encode(iter(SENTENCES), Recorded(), range(4))
    assert added == [{"total": 7, "completed": 3}, 2, 2]


def test_shards_with_an_option_that_is_no_more_are_kept(folder):
    """tests/bad_input has a folder without a manifest."""
    shards = ShardFolder(folder, MANIFEST | {"template": "x"})
    shards.encode(iter(SENTENCES), Recorded(), range(4))
    with pytest.raises(UserError, match="has vectors with template=x, not template=None: continue with"):
        ShardFolder(folder, MANIFEST)
    (folder / "manifest.json").write_text('["a"]')
    with pytest.raises(UserError, match=r"manifest.json is damaged, remove \S+out.shards to start again"):
        ShardFolder(folder, MANIFEST)
    shards.read(3)


@pytest.mark.parametrize("content", [b"", b"no array", encode(SENTENCES[:2]).tobytes(), "cut", "rows", "float64"])
def test_a_damaged_shard_is_named_and_encoded_again_once_it_is_removed(content, folder, tmp_path):
    shards = ShardFolder(folder, MANIFEST)
    shards.encode(iter(SENTENCES), Recorded(), range(4))
    path, vectors = folder / "000001.npy", encode(SENTENCES[2:4])
    match content:
        case "cut":
            path.write_bytes(path.read_bytes()[:-1])
        case "rows":
            np.save(path, vectors[:1])
        case "float64":
            np.save(path, vectors.astype(np.float64))
        case _:
            path.write_bytes(content)
    for read in (lambda: shards.encode(iter(SENTENCES), Recorded(), range(4)), lambda: shards.read(1)):
        with pytest.raises(UserError, match=r"000001.npy is damaged, remove it and run the command again"):
            read()
    path.unlink()
    recorded = Recorded()
    shards.encode(iter(SENTENCES), recorded, range(4))
    assert recorded.sentences == SENTENCES[2:4]
    shards.join(iter(SENTENCES), tmp_path / "out", write_text)
    assert (tmp_path / "out").read_text() == JOINED


@pytest.fixture
def forked(monkeypatch):
    """Start processes in milliseconds; tests/cli/test_encode.py starts them as users do."""
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: context)


@pytest.mark.usefixtures("forked")
def test_processes_encode_all_shards_and_read_ahead_by_two_each(tmp_path):
    read, found = [], {}

    def shards():
        for number in range(12):
            read.append(number)
            yield number, SENTENCES[number % 7 :]

    for number, vectors in encode_in_processes(partial(load_and_wait_for_the_other, tmp_path), DEVICES, shards()):
        assert len(read) <= len(found) + 4
        found[number] = vectors
    assert sorted(found) == read == [*range(12)]
    assert all(np.array_equal(vectors, encode(SENTENCES[number % 7 :])) for number, vectors in found.items())
    assert {path.name for path in tmp_path.iterdir()} == {*DEVICES} and not multiprocessing.active_children()


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(("given", "expected"), [(None, 3), ("5", 6)])
def test_processes_share_the_cores_unless_their_threads_are_given(given, expected, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: setattr(torch, "get_num_threads", lambda: number))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    found = encode_in_processes(load_threads, DEVICES, enumerate([SENTENCES] * 4))
    assert {vectors.item() for _, vectors in found} == {expected}


@pytest.mark.usefixtures("forked")
def test_an_error_of_a_process_ends_all_of_them():
    """tests/cli/test_encode.py has a process that is killed."""
    with pytest.raises(UserError, match="device=(first|second): not here"):
        list(encode_in_processes(load_or_fail, DEVICES, enumerate([SENTENCES] * 9)))
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("forked")
def test_a_failed_write_ends_the_processes(folder, monkeypatch):
    def full(path, vectors):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(WriteError, match="cannot write .*out.shards: No space left on device"):
        ShardFolder(folder, MANIFEST).encode(iter(SENTENCES), partial(encode_in_processes, load, DEVICES), range(4))
    assert not multiprocessing.active_children()


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_end_with_the_main_process(number, run_command, tmp_path):
    (tmp_path / "script.py").write_text(f"""
import multiprocessing, os, signal, threading, time
from functools import partial
from pathlib import Path
from simcse_pl.inference.sharded_encoding import encode_in_processes

def load_and_hang(device):
    Path("{tmp_path}", device, str(os.getpid())).touch()
    time.sleep(600)

def end():
    while len(list(Path("{tmp_path}").glob("*/*"))) < 2:
        time.sleep(0.01)
    os.kill(os.getpid(), {number})

threading.Thread(target=end, daemon=True).start()
context = multiprocessing.get_context("fork")
multiprocessing.get_context = lambda _: context
list(encode_in_processes(load_and_hang, ["one", "two"], enumerate([["a"]] * 9)))
""")
    for device in ("one", "two"):
        (tmp_path / device).mkdir()
    run_command(tmp_path / "script.py", status=1 if number == signal.SIGINT else -number)
    limit = time.monotonic() + 30
    while any(is_running(path.name) for path in tmp_path.glob("*/*")):
        assert time.monotonic() < limit
        time.sleep(0.01)
