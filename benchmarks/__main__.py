"""The benchmarks in a size for 2 cores, without masked_head, and their page.

    python -m benchmarks --senteval-dir SentEval/data/downstream --triplets triplets.csv

Without --senteval-dir STS is the project's own sample, and without --triplets so are the triplets. It takes about
15 minutes; let nothing else run meanwhile.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.comparison import parser
from simcse_pl.data import sample

_PAGE = Path("docs/benchmarks.md")
_FIGURES = Path("docs/figures")
_HEAD = """# Speed and memory

Measured by `python -m benchmarks` on {machine}.
Above each table is the command that makes only that table. The methods of a table take turns in
one process. `times the first` is the median over rounds of the ratio within a round, because
machines are noisy. GFLOP/s counts the operations that the sentences need, without padding.
"""


def commands(senteval_dir: str | None, triplets: str | None) -> list[tuple[list[str], list[str]]]:
    """The arguments of every benchmark, and the names of the tables that it writes."""
    bundle = ["--senteval-dir", senteval_dir, "--tasks", "STS-B"] if senteval_dir else []
    short = ["train", "--rounds", "2", "--steps"]
    rows = ["--triplets", triplets or sample.path("nli.csv")]
    return [
        ([*short, "3"], ["train_sentences"]),
        ([*short, "2", *rows], ["train_triplets"]),
        (["encode", "--rounds", "2", "--sentences", "512"], ["encode"]),
        (["evaluate", "--rounds", "1", *bundle], ["evaluate_sts"]),
        (["search"], ["index", "search_one", "search"]),
        (["data"], ["data", "data_first_step"]),
        (["memory", "--sizes", "64", "256", "--largest-pass", "64"], ["memory"]),
    ]


def page(out: Path, run: list[tuple[list[str], list[str]]]) -> str:
    """The tables in Markdown, each under its command and above its figure."""
    about = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    cpu = next((line.partition(":")[2].strip() for line in about if line.startswith("model name")), "a CPU")
    parts = [_HEAD.format(machine=f"{os.cpu_count()} cores of {cpu}")]
    for arguments, tables in run:
        shown = [Path(argument).name if Path(argument).is_absolute() else argument for argument in arguments]
        parts.append(f"    python -m benchmarks.{shlex.join(shown)}\n")
        for table in tables:
            parts.append((out / f"{table}.md").read_text(encoding="utf-8"))
            parts.append(f"![{table}](figures/benchmark_{table}.png)\n")
    return "\n".join(parts)


def main() -> None:
    """The command line."""
    command_line = parser(__doc__)
    command_line.add_argument("--senteval-dir", default=os.environ.get("SENTEVAL_DIR"))
    command_line.add_argument("--triplets", help="a file of rows of three sentences (`simcse prepare nli` makes one)")
    arguments = command_line.parse_args()
    run = commands(arguments.senteval_dir, arguments.triplets)
    for benchmark, _ in run:
        name, *options = benchmark
        command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{name}", *options, "--out", str(arguments.out)]
        subprocess.run(command, check=True)
    for table in (table for _, tables in run for table in tables):
        shutil.copy(arguments.out / f"{table}.png", _FIGURES / f"benchmark_{table}.png")
    _PAGE.write_text(page(arguments.out, run), encoding="utf-8")


if __name__ == "__main__":
    main()
