"""Run commands in forks of a process that has already imported the libraries, which takes 8 seconds.

As a program, it reads requests from standard input, one line of JSON each: `arguments` of Python (a script, `-m MODULE`
or `-c CODE`, and its own), the folder to run in, `environment`, the files `out` and `err` to write to, and `fault`: a
function of faults.py and its arguments, or null. It answers each request with the exit status of the fork.
"""

import atexit
import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import pickle
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIBRARIES = (  # not wandb: each process that has imported it removes its folder for temporary files
    "accelerate",
    "hydra",
    "matplotlib.pyplot",
    "pandas",
    "peft",
    "pydantic",
    "pytorch_lightning",
    "sklearn.metrics",
    "torch",
    "transformers.models.bert.modeling_bert",
    "transformers.optimization",
)
SECONDS = 600  # time limit of a command


class Forks:
    """The forking process, started by the first command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def run(
        self,
        *arguments: str | Path,
        environment: dict[str, str],
        fault: Sequence[Any] | None = None,
        clone: Path = ROOT,
    ) -> subprocess.CompletedProcess[str]:
        """Run Python in a clone, with these arguments, to its end; the status is negative if a signal ended it."""
        if self.process is None:
            command = [sys.executable, __file__]
            server = environment | {"TMPDIR": tempfile.gettempdir()}  # a long path is too long for sockets of workers
            server.pop("PYTHONPATH", None)  # each fork has its own
            self.process = subprocess.Popen(
                command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=server
            )
        assert self.process.stdin and self.process.stdout
        out, err = self.folder / "out", self.folder / "err"
        given = [str(argument) for argument in arguments]
        files = {"out": str(out), "err": str(err)}
        request = {"arguments": given, "clone": str(clone), "environment": environment, "fault": fault} | files
        print(json.dumps(request), file=self.process.stdin, flush=True)
        status = json.loads(self.process.stdout.readline())
        return subprocess.CompletedProcess(given, status, out.read_text("utf-8"), err.read_text("utf-8"))

    def on_ranks(self, function: Callable[..., None], ranks: int, *arguments: Any) -> dict[Any, Any]:
        """Call a function in as many processes, which are the ranks of one process group.

        The function gets the number of the process, a dictionary for results and the arguments. Returns the dictionary.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "ranks")
            file.write_bytes(pickle.dumps((function, ranks, arguments)))
            code = "import sys; from tests.support.forks import _start_ranks; _start_ranks(sys.argv[1])"
            done = self.run("-c", code, file, environment=dict(os.environ))
            assert done.returncode == 0, done.stderr
            results: dict[Any, Any] = pickle.loads(file.read_bytes())
        return results


@contextlib.contextmanager
def forks(folder: Path) -> Iterator[Forks]:
    """Return a Forks that ends with the context."""
    forks = Forks(folder)
    yield forks
    if forks.process:
        forks.process.communicate("")


def _start_ranks(file: str) -> None:
    """Replace what `Forks.on_ranks` wrote to a file by the results."""
    from torch.multiprocessing import start_processes

    path = Path(file)
    function, ranks, arguments = pickle.loads(path.read_bytes())
    with multiprocessing.Manager() as manager:
        results = manager.dict()
        start_processes(_on_rank, (function, ranks, f"{file}-store", results, arguments), ranks, start_method="fork")
        path.write_bytes(pickle.dumps(dict(results)))


def _on_rank(
    number: int, function: Callable[..., None], ranks: int, store: str, results: Any, arguments: Sequence[Any]
) -> None:
    """Connect the ranks by a file: another process could take a port before the first rank listens to it."""
    import torch

    os.environ.update({"LOCAL_RANK": str(number), "NODE_RANK": "0", "WORLD_SIZE": str(ranks)})
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=ranks)
    function(number, results, *arguments)
    torch.distributed.destroy_process_group()


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


def run(
    arguments: list[str], clone: str, environment: dict[str, str], out: str, err: str, fault: list[Any] | None
) -> None:
    """Run a script or module in this process as `python` would."""
    signal.alarm(SECONDS)
    for file, flags, stream in ((os.devnull, os.O_RDONLY, 0), (out, os.O_WRONLY, 1), (err, os.O_WRONLY, 2)):
        os.dup2(os.open(file, flags | os.O_CREAT | os.O_TRUNC if stream else flags), stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(clone)
    is_script = arguments[0] not in ("-c", "-m")
    sys.path[0] = str(Path(clone, arguments[0]).parent) if is_script else clone
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    if fault:
        getattr(importlib.import_module("tests.support.faults"), fault[0])(*fault[1:])
    if is_script:
        sys.argv = arguments
        runpy.run_path(sys.argv[0], run_name="__main__")
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1], {"__name__": "__main__"})


def status_of(request: dict[str, Any]) -> int:
    """Run a request, and return the exit status that Python would have."""
    try:
        run(**request)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def end_with(status: int) -> None:
    """End as Python does, but without freeing the libraries' objects, which would copy their memory."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    for library in LIBRARIES:
        __import__(library)
    gc.freeze()  # the collector of a fork would copy the memory that it looks at
    if request := serve():
        end_with(status_of(request))
