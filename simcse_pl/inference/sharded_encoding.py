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
from contextlib import closing, contextmanager
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import torch

from simcse_pl.utils.errors import FailureError, UserError, reraise_as
from simcse_pl.utils.files import atomic_write, read_json, remove_half_written, write_text
from simcse_pl.utils.progress import progress_bar

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]
EncodeToArray = Callable[[list[str]], Array]  # from n sentences to vectors [n, dim] float32
Encoded = Generator[tuple[int, Array], None, None]  # numbers of shards, and their vectors

MANIFEST_FILE = "manifest.json"
_JOINED_FILE = "joined"


class ShardFolder:
    """A folder with the vectors of a file's sentences: one .npy file per shard, and a manifest.

    Args:
        folder: it is created if it does not exist.
        manifest: everything that determines the vectors, as plain values. It must have `sentences` (the number of
            sentences of the file), `shard_size` (the number of sentences per shard) and `dim`.

    Raises:
        UserError: the folder has shards of another manifest, or its manifest is missing or damaged.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.count = math.ceil(manifest["sentences"] / manifest["shard_size"])
        path, again = folder / MANIFEST_FILE, f"remove {folder} to start again"
        if not path.exists():
            if any(folder.glob("*.npy")):
                raise UserError(f"{path} is missing: {again}")
            write_text(path, json.dumps(manifest, indent=1))
        with reraise_as(f"{path} is damaged, {again}", users_too=True):
            saved = dict(read_json(path))
        for name in [*manifest, *saved]:
            if (old := saved.get(name)) != (new := manifest.get(name)):
                same = "continue with the same encoder, options and file"
                raise UserError(f"{folder} has vectors with {name}={old}, not {name}={new}: {same}, or {again}")

    def rows(self, numbers: Iterable[int]) -> int:
        """Return the number of sentences in some shards."""
        size, sentences = self.manifest["shard_size"], self.manifest["sentences"]
        return sum(min(size, sentences - number * size) for number in numbers)

    def read(self, number: int) -> Array:
        """Return the vectors of a shard, [rows, dim] float32; raise UserError if its file is damaged."""
        path, shape = self._path(number), (self.rows([number]), self.manifest["dim"])
        with reraise_as(f"{path} is damaged, remove it and run the command again"):
            vectors: Array = np.load(path, mmap_mode="r", allow_pickle=False)
            if vectors.shape != shape or vectors.dtype != np.float32:
                raise ValueError(f"it must have {shape[0]} vectors of {shape[1]} dimensions in float32")
        return vectors

    def missing(self, numbers: Iterable[int]) -> set[int]:
        """Return the numbers of the shards that are not in the folder; raise UserError if one there is damaged."""
        present = {number for number in numbers if self._path(number).exists()}
        for number in sorted(present):
            self.read(number)
        return {*numbers} - present

    def encode(
        self, sentences: Iterable[str], encode: Callable[[Iterator[tuple[int, list[str]]]], Encoded], part: range
    ) -> None:
        """Encode the shards that are missing, with a progress bar on standard error.

        Args:
            sentences: all sentences of the file.
            encode: a function from numbered shards of sentences to their vectors, in any order.
            part: the numbers of the shards to encode.
        """
        missing = self.missing(part)
        total, left = self.rows(part), self.rows(missing)
        shards = enumerate(chunks_of(sentences, self.manifest["shard_size"]))
        wanted = itertools.islice((shard for shard in shards if shard[0] in missing), len(missing))
        with progress_bar() as bar, closing(encode(wanted)) as encoded:
            task = bar.add_task("encoding", total=total, completed=total - left)
            for number, vectors in encoded:
                with atomic_write(self.folder) as new:
                    np.save(new / self._path(number).name, vectors)
                bar.advance(task, len(vectors))

    def join(self, sentences: Iterable[str], out: Path, write: Callable[[BinaryIO, Any, int], None]) -> None:
        """Write one file with the vectors of all shards, atomically, and remove the folder.

        Args:
            sentences: all sentences of the file.
            out: the file to write.
            write: writes a file from the sentences and vectors of each shard, and the number of dimensions.
        """
        remove_half_written(self.folder)
        chunks = chunks_of(sentences, self.manifest["shard_size"])
        vectors = map(self.read, range(self.count))
        with atomic_write(self.folder) as new, (new / _JOINED_FILE).open("wb") as file:
            write(file, zip(chunks, vectors, strict=True), self.manifest["dim"])
        os.replace(self.folder / _JOINED_FILE, out)
        shutil.rmtree(self.folder)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npy"


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
    """Encode shards in one process per device.

    On a CPU, each process has the number of threads in OMP_NUM_THREADS, or its share of the cores. At most two shards
    per process are in memory.

    Args:
        load: loads the encoder on a device, and returns a function from sentences to vectors. It is called in each
            process, so it must be picklable.
        devices: `cpu`, `cuda:1`, ..., or None for the default.
        shards: numbered shards of sentences.

    Yields:
        The number and the vectors of each shard, the first finished one first.

    Raises:
        FailureError: a process was killed.
    """
    running: dict[Future[Array], int] = {}
    with _pool(load, devices) as pool:
        for number, sentences in shards:
            running[_submit(pool, sentences)] = number
            if len(running) == 2 * len(devices):
                yield from _finished(running)
        while running:
            yield from _finished(running)


def _finished(running: dict[Future[Array], int]) -> Encoded:
    """Wait until a shard is finished, and yield and remove all finished ones."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()


@contextmanager
def _pool(load: Callable[[str | None], EncodeToArray], devices: Sequence[str | None]) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose processes are killed if the block raises an exception."""
    context = multiprocessing.get_context("spawn")  # CUDA and OpenMP do not work after a fork
    of_workers: SimpleQueue[str | None] = context.SimpleQueue()
    for device in devices:
        of_workers.put(device)
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(len(devices), context, _start_worker, (load, of_workers, len(devices)))
    try:
        yield pool
    except BaseException as error:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        if isinstance(error, BrokenProcessPool):
            advice = "run the command again to continue (with less memory: fewer --processes, a smaller --batch-size)"
            raise FailureError(f"a worker process was killed, perhaps because memory ran out: {advice}") from error
        raise
    finally:
        pool.shutdown()


def _submit(pool: ProcessPoolExecutor, sentences: list[str]) -> Future[Array]:
    """Submit a shard. A process that this starts ignores Ctrl-C, which ends it through the main process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_encode_in_worker, sentences)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _start_worker(
    load: Callable[[str | None], EncodeToArray], devices: "SimpleQueue[str | None]", processes: int
) -> None:
    global _encoder
    threading.Thread(target=_end_with_main_process, daemon=True).start()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    _encoder = functools.cache(functools.partial(load, devices.get()))  # an error is one of the first shard


def _end_with_main_process() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


def _encoder() -> EncodeToArray:
    """Return the function that encodes in this worker process. `_start_worker` replaces this one."""
    raise RuntimeError("not a worker process")


def _encode_in_worker(sentences: list[str]) -> Array:
    return _encoder()(sentences)
