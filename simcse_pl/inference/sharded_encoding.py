"""Encode a file in shards, in one or several processes, so that a killed command continues where it stopped."""

import functools
import itertools
import json
import math
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import torch

from simcse_pl.utils.errors import FailureError, UserError, reraise_as
from simcse_pl.utils.files import atomic_write, write_text
from simcse_pl.utils.terminal import progress_bar

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]
EncodeToArray = Callable[[list[str]], Array]  # from n sentences to vectors [n, dim] float32
Encoded = Generator[tuple[int, Array], None, None]  # numbers of shards, and their vectors

_MANIFEST_FILE = "manifest.json"


class ShardFolder:
    """A folder with the vectors of a file's sentences: one .npy file per shard, and a manifest.

    Args:
        folder: it is created if it does not exist.
        manifest: all that determines the vectors, as plain values. It must have `sentences` (the number of sentences
            of the file), `shard_size` (the number of sentences per shard) and `dim`.

    Raises:
        UserError: the folder has another manifest, or a damaged one, or shards without a manifest.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.sentences, self.dim = folder, manifest["sentences"], manifest["dim"]
        self.shard_size: int = manifest["shard_size"]
        self.count = math.ceil(self.sentences / self.shard_size)
        path, again = folder / _MANIFEST_FILE, f"remove {folder} to start again"
        if not path.exists():
            if any(folder.glob("*.npy")):
                raise UserError(f"{path} is missing: {again}")
            write_text(path, json.dumps(manifest, indent=1))
        with reraise_as(f"{path} is damaged, {again}"):
            saved = dict(json.loads(path.read_text("utf-8")))
        for name in [*manifest, *saved]:
            if (old := saved.get(name)) != (new := manifest.get(name)):
                same = "continue with the same encoder, options and file"
                what = f"{name}={old!s:.20}, not {name}={new!s:.20}"
                raise UserError(f"{folder} has vectors with {what}: {same}, or {again}")

    def read(self, number: int) -> Array:
        """Return the vectors of a shard, [rows, dim] float32; raise UserError if its file is damaged."""
        path, shape = self._path(number), (self._rows([number]), self.dim)
        with reraise_as(f"{path} is damaged, remove it and run the command again"):
            vectors: Array = np.load(path, mmap_mode="r", allow_pickle=False)
            if vectors.shape != shape or vectors.dtype != np.float32:
                raise ValueError(f"it must have {shape[0]} vectors of {shape[1]} dimensions in float32")
        return vectors

    def encode(
        self, sentences: Iterable[str], encode: Callable[[Iterator[tuple[int, list[str]]]], Encoded], part: range
    ) -> None:
        """Encode the shards of a part that are missing, with a progress bar on standard error.

        Args:
            sentences: all sentences of the file.
            encode: a function from numbered shards of sentences to their vectors, in any order.
            part: the numbers of the shards.

        Raises:
            UserError: a shard in the folder is damaged.
        """
        present = [number for number in part if self._path(number).exists()]
        for number in present:
            self.read(number)
        missing = {*part} - {*present}
        shards = enumerate(chunks_of(sentences, self.shard_size))
        wanted = itertools.islice((shard for shard in shards if shard[0] in missing), len(missing))
        with progress_bar() as bar, closing(encode(wanted)) as encoded:
            task = bar.add_task("encoding", total=self._rows(part), completed=self._rows(present))
            for number, vectors in encoded:
                with atomic_write(self.folder) as new:
                    np.save(new / self._path(number).name, vectors)
                bar.advance(task, len(vectors))

    def join(self, sentences: Iterable[str], out: Path, write: Callable[[BinaryIO, Any, int], None]) -> None:
        """Write one file with the vectors of all shards, atomically, and remove the folder.

        Args:
            sentences: all sentences of the file.
            out: the file to write.
            write: writes a file from the sentences and vectors of each shard, and the number of dimensions. It may
                write more files beside it.
        """
        joined = self.folder / "joined"
        shutil.rmtree(joined, ignore_errors=True)  # of a killed command
        chunks = zip(chunks_of(sentences, self.shard_size), map(self.read, range(self.count)), strict=True)
        with atomic_write(joined) as new, (new / out.name).open("wb") as file:
            write(file, chunks, self.dim)
        for path in sorted(joined.iterdir(), key=lambda path: path.name == out.name):  # the file itself comes last
            os.replace(path, out.with_name(path.name))
        shutil.rmtree(self.folder)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npy"

    def _rows(self, numbers: Iterable[int]) -> int:
        return sum(min(self.shard_size, self.sentences - number * self.shard_size) for number in numbers)


def chunks_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items, the last one shorter."""
    items = iter(items)
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def encode_here(encode: EncodeToArray, shards: Iterable[tuple[int, list[str]]]) -> Encoded:
    """Yield the number and the vectors of each shard, encoded in this process."""
    for number, sentences in shards:
        yield number, encode(sentences)


def encode_in_processes(
    load: Callable[[str | None], EncodeToArray],
    devices: Sequence[str | None],
    shards: Iterable[tuple[int, list[str]]],
) -> Encoded:
    """Encode shards in one process per device, with at most two shards per process in memory.

    OMP_NUM_THREADS is the number of threads of each process. Without it, the processes share the cores.

    Args:
        load: loads the encoder on a device, in each process. It must be picklable.
        devices: `cpu`, `cuda:1`, ..., or None for the default.
        shards: numbered shards of sentences.

    Yields:
        The number and the vectors of each shard, the first finished one first.

    Raises:
        FailureError: a process was killed.
    """
    context = multiprocessing.get_context("spawn")  # CUDA and OpenMP do not work after a fork
    queue: SimpleQueue[str | None] = context.SimpleQueue()
    for device in devices:
        queue.put(device)
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(len(devices), context, _start_worker, (load, queue, len(devices)))
    running: dict[Future[Array], int] = {}
    try:
        for number, sentences in shards:
            # A process that `submit` starts inherits the mask. On Ctrl-C, this process ends it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            running[pool.submit(_encode_in_worker, sentences)] = number
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            if len(running) == 2 * len(devices):
                yield from _finished(running)
        while running:
            yield from _finished(running)
    except BaseException as error:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        if isinstance(error, BrokenProcessPool):
            advice = "run the command again to continue (with less memory: fewer --processes, a smaller --batch-size)"
            raise FailureError(f"a worker process was killed, perhaps because memory ran out: {advice}") from error
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        pool.shutdown()


def _finished(running: dict[Future[Array], int]) -> Encoded:
    """Wait for a shard, and yield and remove all finished ones."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()


_encoder: Callable[[], EncodeToArray]  # of a worker process


def _start_worker(
    load: Callable[[str | None], EncodeToArray], devices: "SimpleQueue[str | None]", processes: int
) -> None:
    global _encoder
    threading.Thread(target=_end_with_main_process, daemon=True).start()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    _encoder = functools.cache(functools.partial(load, devices.get()))  # loads later: an error here would be lost


def _end_with_main_process() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


def _encode_in_worker(sentences: list[str]) -> Array:
    return _encoder()(sentences)
