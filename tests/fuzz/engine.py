"""One target, fuzzed in a fork of this process: what is allowed of a reader, and a record of what it did instead."""

import hashlib
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import atheris
import torch

from simcse_pl.errors import UserError
from tests.fuzz.mutations import mutated

CPU_SECONDS, MEGABYTES = 5, 256  # that one input may take
_LONGEST = 1 << 16  # bytes of an input
_ADDRESS_SPACE = 8 << 30  # that a process may ask for beside what it has
_RUNS_CODE = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")


@dataclass(frozen=True)
class Target:
    """A reader, and the files that it reads.

    Args:
        files: by their names; of each what it may hold, the first of which makes the folder sound.
        read: is given the folder.
        runs: inputs that fit into the tests.
        seal: is given the folder's files before they are written, where some of them tell of others.
        names_file: whether a refusal must name a file of the folder.
    """

    files: Mapping[str, Sequence[bytes]]
    read: Callable[[Path], Any]
    runs: int = 300
    seal: Callable[[dict[str, bytes]], None] = field(default=lambda files: None)
    names_file: bool = True


@dataclass(frozen=True)
class Fuzzed:
    """What became of a target: its inputs, the processor time that they took, and the kinds of failures."""

    runs: int
    seconds: float
    found: int


def fuzz(name: str, target: Target, runs: int, seed: int, found: Path) -> Fuzzed:
    """Fuzz in a fork; inputs that fail come into the folder `found`, one of each kind of failure, with what was wrong.

    An input is a file's number, a byte, and what the file holds in place of what makes the folder sound.
    """
    found.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        child = os.fork()
        if child == 0:
            try:
                _in_fork(name, target, runs, seed, found.absolute(), Path(scratch))
            finally:  # not reached where all is well: libFuzzer ends the process
                traceback.print_exc()
                os._exit(1)
        _, status, used = os.wait4(child, 0)
        if status:  # a crash, or a hang that libFuzzer ended: it has left the input, and its log what happened
            (found / f"{name}-ended.txt").write_bytes((Path(scratch) / "log").read_bytes())
    failures = [path for path in found.iterdir() if path.name.startswith(f"{name}-") and path.suffix == ".txt"]
    return Fuzzed(runs, used.ru_utime + used.ru_stime, len(failures))


def _in_fork(name: str, target: Target, runs: int, seed: int, found: Path, scratch: Path) -> None:
    for folder in ("folder", "corpus", "tmp"):
        (scratch / folder).mkdir()
    os.environ.update(XDG_CACHE_HOME=f"{scratch}/tmp", TMPDIR=f"{scratch}/tmp")
    tempfile.tempdir = f"{scratch}/tmp"
    os.chdir(scratch / "folder")
    log = os.open(scratch / "log", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    seeds = [bytes([place]) + seed for place, seeds in enumerate(target.files.values()) for seed in seeds]
    for place, content in enumerate(seeds):
        (scratch / "corpus" / str(place)).write_bytes(content)
    for limit, more in ((resource.RLIMIT_AS, _ADDRESS_SPACE), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (more and more + _address_space(), resource.RLIM_INFINITY))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    options = [f"-runs={runs}", f"-seed={seed}", f"-max_len={_LONGEST}", "-timeout=120", "-rss_limit_mb=0"]
    options += ["-reload=0", f"-artifact_prefix={found}/{name}-"]

    def mutate(data: bytes, max_size: int, chance: int) -> bytes:
        """Every other time of a sound file: of many files, most are seldom among those that libFuzzer goes on with."""
        own = random.Random(chance)
        return _mutated(data if own.random() < 0.5 else own.choice(seeds), max_size, own)

    torch.set_num_threads(1)  # a fork would wait for the threads of its parent, which it does not have
    run = _Run(name, target, found, scratch)
    run.check_sound()
    atheris.Setup(["fuzz", *options, str(scratch / "corpus")], run.one, custom_mutator=mutate)
    atheris.Fuzz()  # ends the process


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _mutated(data: bytes, max_size: int, chance: random.Random) -> bytes:
    place, content = data[:1] or b"\0", data[1:]
    changed = mutated(content, chance, lambda part: atheris.Mutate(part, max_size // 2))
    return place + changed[: max_size - 1]


class _Run:
    """What is asked of every input, and the kinds of failures so far."""

    def __init__(self, name: str, target: Target, found: Path, scratch: Path) -> None:
        self.name, self.target, self.found, self.scratch = name, target, found, scratch
        self.folder = scratch / "folder"
        self.kinds: set[str] = set()
        self.did: list[str] = []
        self.reading = False
        sys.addaudithook(self.audit)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what no reader may do; what it raised here, a reader might catch."""
        if not self.reading:
            return
        if event in _RUNS_CODE:
            self.did.append(f"{event} {arguments[:2]}")
        elif event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR) and isinstance(arguments[0], str | Path):
            path = os.path.abspath(arguments[0])
            if not path.startswith((f"{self.folder}/", f"{self.scratch}/tmp/", "/dev/")):
                self.did.append(f"wrote {path}")

    def check_sound(self) -> None:
        """See that what inputs start from is read: else nothing of a reader but its refusals would be fuzzed."""
        self.write({})
        self.target.read(self.folder)

    def write(self, changed: dict[str, bytes]) -> None:
        """Make the folder sound, but for what is changed."""
        files = {name: seeds[0] for name, seeds in self.target.files.items()} | changed
        self.target.seal(files)
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def one(self, data: bytes) -> None:
        """Read one input; note a kind of failure that is new."""
        names = list(self.target.files)
        self.write({names[(data or b"\0")[0] % len(names)]: data[1:]})
        problem = self.problem()
        if problem and problem[0] not in self.kinds:
            self.kinds.add(problem[0])
            file = self.found / f"{self.name}-{hashlib.sha256(problem[0].encode()).hexdigest()[:8]}"
            file.write_bytes(data)
            file.with_suffix(".txt").write_text(f"{problem[0]}\n\n{problem[1]}", errors="replace")

    def problem(self) -> tuple[str, str] | None:
        """What was wrong with reading the folder, in short, which is its kind, and at length."""
        self.did.clear()
        cpu, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.reading = True
        try:
            self.target.read(self.folder)
        except UserError as error:
            text = str(error)
            if "\n" in text or (self.target.names_file and str(self.folder) not in text):
                return f"no line that names the file, {_place(error)}", text + traceback.format_exc()
            if isinstance(error.__cause__, MemoryError) or "allocate" in text:
                return f"memory, {_place(error)}", traceback.format_exc()
        except BaseException as error:  # a library of Rust's has one that is no Exception
            return f"{type(error).__name__}, {_place(error)}", traceback.format_exc()
        finally:
            self.reading = False
        cpu, memory = time.process_time() - cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
        if cpu > CPU_SECONDS or memory > MEGABYTES << 10:
            return "took too much", f"{cpu:.1f} CPU s, {memory >> 10} MB"
        return ("did what it may not", "\n".join(self.did)) if self.did else None


def _place(error: BaseException) -> str:
    """The last line of ours that an exception came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f"{Path(own.filename).name}:{own.lineno}" for own in frames if "/simcse_pl/" in own.filename]
    return ours[-1] if ours else "no line of ours"
