"""Cost as work grows: training by batch size, length and number of processes, and a report by number of runs.

    python -m benchmarks.scaling

Training is that of the packaged encoder (6 layers) on the packaged Wikipedia sample, unsupervised. Batches of more than
64 rows use gradient caching (module.chunk_size=64). Sequences of a length are that long without padding. Two processes
share the cores of one. benchmarks.data measures corpora of several sizes.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pandas as pd

from benchmarks.common import parser, training_step, wikipedia_sentences
from benchmarks.comparison import save, timed
from simcse_pl.results.run_files import RESULTS_FILE
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import tracked

CHUNK = 64  # rows encoded at once


def step_seconds(sentences: list[str], max_length: int) -> float:
    """Return the seconds of the second of two training steps on a batch."""
    step = training_step(sentences, max_length, CHUNK if len(sentences) > CHUNK else None)
    return [timed(step) for _ in range(2)][1]


def rate_of_run(ranks: int, steps: int, folder: Path) -> float:
    """Return the sentences per second that a run with this number of processes logs, the median over its steps."""
    options = [f"trainer.devices={ranks}", "trainer.accelerator=cpu", f"hydra.run.dir={folder}"]
    options += [f"trainer.max_steps={steps}", f"val_every={steps}", "log_every=1", "logger=csv"]
    options += [
        "setting=unsupervised",
        "data=wiki_sample",
        "data.validation=sample",
        "speed.tokens_per_pass=256",
        "speed.fast_dropout=true",
        *(["trainer=ddp"] if ranks > 1 else []),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": str((os.cpu_count() or ranks) // ranks)}
    command = [sys.executable, "-W", "ignore", "-m", "simcse_pl", "train", *options]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    with open(folder / "metrics.csv", encoding="utf-8") as file:
        rates = [row["speed/sentences_per_second"] for row in csv.DictReader(file)]
    return median(float(rate) for rate in rates if rate)


def report_seconds(run: Path, runs: int, folder: Path) -> float:
    """Return the seconds of `simcse report` on a sweep of copies of a run, with other seeds."""
    results = json.loads((run / RESULTS_FILE).read_text(encoding="utf-8"))
    for number in range(runs):
        job = folder / str(number)
        job.mkdir(parents=True)
        shutil.copy(run / "metrics.csv", job)
        (job / RESULTS_FILE).write_text(json.dumps(results | {"seed": number}), encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-m", "simcse_pl", "report", str(folder)]
    return timed(lambda: subprocess.run(command, check=True, capture_output=True))


def table(name: str, title: str, columns: Mapping[str, Sequence[float]], note: str) -> Table:
    """Return a table whose first column has whole numbers."""
    frame = pd.DataFrame(columns)
    return Table(name, title, frame, dict.fromkeys(frame, 2) | {frame.columns[0]: 0}, [note])


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    command_line.add_argument("--sizes", type=int, nargs="+", default=[16, 64, 256, 1024, 4096], help="batch sizes")
    command_line.add_argument("--lengths", type=int, nargs="+", default=[16, 32, 64, 128, 256, 512], help="tokens")
    command_line.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="numbers of processes")
    command_line.add_argument("--steps", type=int, default=12, help="steps of a run with a number of processes")
    command_line.add_argument("--runs", type=int, nargs="+", default=[10, 100, 1000], help="runs of a report")
    given = command_line.parse_args()
    sentences = wikipedia_sentences()
    tables = []

    seconds = [step_seconds(sentences[:size], 32) for size in tracked(given.sizes, "batch sizes")]
    rates = [size / own for size, own in zip(given.sizes, seconds, strict=True)]
    rows = {"rows": given.sizes, "s per step": seconds, "rows/s": rates}
    note = f"float32, up to 32 tokens; batches of more than {CHUNK} rows are encoded in chunks of {CHUNK}"
    tables.append(table("scaling_batch", "Training by batch size", rows, note))

    long = [" ".join(sentences[start::16]) for start in range(16)]
    seconds = [step_seconds(long, length) for length in tracked(given.lengths, "lengths")]
    tokens = [2 * 16 * length / own for length, own in zip(given.lengths, seconds, strict=True)]
    frame = {
        "tokens": given.lengths,
        "s per step": seconds,
        "rows/s": [16 / own for own in seconds],
        "tokens/s": tokens,
    }
    tables.append(table("scaling_length", "Training by length", frame, "float32, 16 rows of two views"))

    with TemporaryDirectory() as name:
        runs = {ranks: Path(name, f"run_{ranks}") for ranks in given.ranks}
        rates = [rate_of_run(ranks, given.steps, folder) for ranks, folder in tracked(list(runs.items()), "processes")]
        frame = {"processes": given.ranks, "sentences/s": rates}
        note = "64 rows over all processes, by `simcse train trainer=ddp`; the two views of a row count as sentences"
        tables.append(table("scaling_ranks", "Training by processes", frame, note))

        first = runs[given.ranks[0]]
        reports = [report_seconds(first, count, Path(name, str(count))) for count in tracked(given.runs, "reports")]
        frame = {"runs": given.runs, "s": reports}
        note = "runs of one row of a sweep with different seeds"
        tables.append(table("scaling_report", "Time of `simcse report` by number of runs", frame, note))
    save(given.out, *tables)


if __name__ == "__main__":
    main()
