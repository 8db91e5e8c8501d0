"""Train, resume, evaluate, index and search in one process, over and over: memory, open files and processes stay flat.

    python -m benchmarks.soak --minutes 30

By the front doors themselves, as the jobs of a multirun are; with the packaged encoder's first layer, on the project's
sample. What the process holds is printed after every round, and how it grew from the second third of the rounds to the
last; the exit status is 1 where files or processes did.
"""

import argparse
import contextlib
import gc
import io
import json
import os
import runpy
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from simcse_pl.api import SimCSE
from simcse_pl.data.sts import load_sample

ROOT = Path(__file__).parents[1]
SMALL = ("model.num_layers=1", "data.batch_size=16", "data.limit=64", "val_every=2", "trainer.max_epochs=1")


@dataclass(frozen=True)
class Held:
    """What this process holds.

    Args:
        memory: resident, in MiB.
        files: open, sockets included.
        threads: of it.
        processes: that it has started and that are there.
    """

    memory: float
    files: int
    threads: int
    processes: int

    @classmethod
    def now(cls) -> "Held":
        """As Linux tells it."""
        gc.collect()
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        children = Path("/proc/self/task").glob("*/children")
        return cls(
            memory=round(int(status["VmRSS"].split()[0]) / 1024, 1),
            files=len(os.listdir("/proc/self/fd")),
            threads=int(status["Threads"]),
            processes=sum(len(child.read_text().split()) for child in children),
        )


def front_door(script: str, *options: str) -> None:
    """Run one in this process; what it prints is of no interest."""
    sys.argv = [script, *options]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"{script}: {said.getvalue()}") from end


def one_round(folder: Path) -> None:
    """Train, go on with it, evaluate the encoder, and search with it."""
    run = f"hydra.run.dir={folder}/run"
    front_door("train.py", run, *SMALL, "trainer.max_steps=2")
    front_door("train.py", run, *SMALL, "trainer.max_steps=4", f"resume={folder}/run/checkpoints/last.ckpt")
    front_door("evaluate.py", f"hydra.run.dir={folder}/results", f"encoder={folder}/run/encoder")
    simcse = SimCSE(str(folder / "run" / "encoder"))
    simcse.build_index(load_sample("dev").sentences)
    simcse.save_index(str(folder / "index"))
    simcse.load_index(str(folder / "index"))
    simcse.search("Two dogs run through the snow.")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    end = time.monotonic() + 60 * parser.parse_args().minutes
    os.environ.setdefault("WANDB_MODE", "offline")
    rounds: list[Held] = []
    while time.monotonic() < end or len(rounds) < 3:
        with tempfile.TemporaryDirectory() as folder:
            one_round(Path(folder))
        rounds.append(Held.now())
        print(len(rounds), json.dumps(asdict(rounds[-1])), flush=True)
    third = len(rounds) // 3
    early, late = rounds[third : 2 * third], rounds[-third:]
    grown = {
        name: median(asdict(own)[name] for own in late) - median(asdict(own)[name] for own in early)
        for name in asdict(rounds[0])
    }
    print(f"{len(rounds)} rounds; from the second third to the last:", json.dumps(grown))
    sys.exit(int(grown["files"] > 0 or grown["processes"] > 0))


if __name__ == "__main__":
    main()
