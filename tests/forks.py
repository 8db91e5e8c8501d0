"""Commands in forks of one process that has imported the libraries: each a process of its own, without their 8 seconds.

As a program it reads requests from standard input, a line of JSON each: `arguments` of Python (a script or
`-m MODULE`, and its own), its `environment`, the files `out` and `err` that it writes to, and perhaps `kill`:
[what, n], to be killed by SIGKILL in the n-th call of `training_step`, or half-way through the n-th checkpoint that is
`saved`, or to be `told` to stop by SIGTERM in the n-th call of `training_step`; and perhaps `fault`, the name of a
function of tests/faults.py and its arguments. It answers each with its exit status when it has ended.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LIBRARIES = (  # not wandb: each process that has imported it removes its folder for temporary files
    *(
        "accelerate",
        "hydra",
        "matplotlib.pyplot",
        "pandas",
        "pydantic",
        "pytorch_lightning",
        "sklearn.metrics",
        "torch",
    ),
    "transformers.models.bert.modeling_bert",
)
SECONDS = 600  # a command may take


class Forks:
    """The process that forks, started when the first command is to run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def run(
        self,
        *arguments: str | Path,
        environment: dict[str, str],
        kill: tuple[str, int] | None = None,
        fault: Sequence[Any] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Python with these arguments, run to its end; its status is negative where a signal ended it."""
        if self.process is None:
            command = [sys.executable, __file__]
            self.process = subprocess.Popen(
                command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        assert self.process.stdin and self.process.stdout
        out, err = self.folder / "out", self.folder / "err"
        given = [str(argument) for argument in arguments]
        files = {"out": str(out), "err": str(err)}
        request = {"arguments": given, "environment": environment, "kill": kill, "fault": fault} | files
        print(json.dumps(request), file=self.process.stdin, flush=True)
        status = json.loads(self.process.stdout.readline())
        return subprocess.CompletedProcess(given, status, out.read_text("utf-8"), err.read_text("utf-8"))


@contextlib.contextmanager
def forks(folder: Path) -> Iterator[Forks]:
    """One that ends with the context."""
    forks = Forks(folder)
    yield forks
    if forks.process:
        forks.process.communicate("")


def serve() -> dict[str, Any] | None:
    """Fork for each request; in the fork, return it."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            return request
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def become(
    arguments: list[str],
    environment: dict[str, str],
    out: str,
    err: str,
    kill: list[Any] | None,
    fault: list[Any] | None,
) -> None:
    """Be in this process what Python is with these arguments."""
    signal.alarm(SECONDS)
    for file, flags, stream in ((os.devnull, os.O_RDONLY, 0), (out, os.O_WRONLY, 1), (err, os.O_WRONLY, 2)):
        os.dup2(os.open(file, flags | os.O_CREAT | os.O_TRUNC if stream else flags), stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = str(ROOT)
    if kill:
        kill_at(*kill)
    if fault:
        getattr(importlib.import_module("tests.faults"), fault[0])(*fault[1:])
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(sys.argv[0], run_name="__main__")


def status_of(request: dict[str, Any]) -> int:
    """Run what is asked for; the status that Python would end with."""
    try:
        become(**request)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def end_with(status: int) -> None:
    """End as Python does, but leave the libraries' objects where they are: to take them apart would copy them all."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def kill_at(what: str, n: int) -> None:
    """Patch the n-th call of something to end this process at once."""
    import torch

    from simcse_pl.training.module import SimCSEModule

    calls = 0
    original = torch.save if what == "saved" else SimCSEModule.training_step

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if what == "told" and calls == n:
            os.kill(os.getpid(), signal.SIGTERM)
        if calls < n or what == "told":
            return original(*arguments, **options)
        if what == "saved":
            arguments[1].write(b"PK half of a checkpoint")
            arguments[1].flush()
        return os.kill(os.getpid(), signal.SIGKILL)

    if what == "saved":
        torch.save = counted
    else:
        SimCSEModule.training_step = counted


if __name__ == "__main__":
    for library in LIBRARIES:
        __import__(library)
    gc.freeze()  # a fork's collector would copy what it looks at
    if request := serve():
        end_with(status_of(request))
