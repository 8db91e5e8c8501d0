"""Run the benchmarks with settings for 2 cores, and write docs/benchmarks.md.

    python -m benchmarks --senteval-dir SentEval/data/downstream --triplets triplets.csv

Without these options, STS and the triplets are the project's own sample. It takes about 15 minutes; run nothing else
meanwhile. `equality`, `findings`, `methods`, `transfer` and `words` are not included: other pages have
their numbers.
"""

import os
import shlex
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from textwrap import fill

import torch

from benchmarks.common import parser
from simcse_pl.data import sample
from simcse_pl.utils.code import versions

_PAGE = Path("docs/benchmarks.md")
_FIGURES = Path("docs/figures")
_HEAD = """# Speed and memory

{measured}

A round measures every row of a table once. `times the first` is the speed relative to the first
row, as the median over rounds. Compare only within a table, because the load of the machine varies.

- `plain loop` is PyTorch in float32, with the encoder, the loss and the linear layers of simcse_pl.
- `simcse_pl` uses bf16 and the default [speed
  options](devices.md#what-determines-the-speed-on-a-cpu). `unpadded` sets
  `model.attn_implementation=unpadded`, `padded` and `one pass` `speed.tokens_per_pass=inf`, and
  `torch's dropout` `speed.fast_dropout=false`.
- snli.csv is SNLI's dev split: `simcse prepare nli triplets snli_1.0_dev.jsonl snli.csv`.
"""


def commands(senteval_dir: str | None, triplets: str | None) -> dict[str, list[str]]:
    """Return the arguments of each benchmark by the name of its table."""
    bundle = ["--senteval-dir", senteval_dir, "--tasks", "STS-B"] if senteval_dir else []
    train = ["train", "--rounds", "3", "--steps"]
    encode = ["encode", "--rounds", "3", "--sentences", "512"]
    return {
        "train_sentences": [*train, "3"],
        "train_triplets": [*train, "2", "--triplets", triplets or sample.path("nli.csv")],
        "encode": encode,
        "encode_long": [*encode, "--per-text", "8", "--max-length", "256"],
        "evaluate_sts": ["evaluate", "--rounds", "1", *bundle],
        "data": ["data", "--lines", "10000", "100000"],
        "memory": ["memory", "--sizes", "64", "256", "--largest-pass", "64"],
    }


def page(out: Path, run: dict[str, list[str]], measured_with: str) -> str:
    """Return the tables in Markdown, each with its command and its figure; the head says what was measured."""
    about = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    cpu = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in about)}
    known = ", ".join(f"{name} {cpu[name]}" for name in ("cpu family", "model") if name in cpu)
    machine = f"{os.cpu_count()} cores of {cpu.get('model name', 'a CPU')} ({known or 'unknown'})"
    measured = (
        f"`python -m benchmarks` measured these tables on {date.today()}, on {machine}, with "
        f"{torch.get_num_threads()} threads and {measured_with}. GPUs have [a page of their own](gpu.md)."
    )
    parts = [_HEAD.format(measured=fill(measured, 100))]
    for table, arguments in run.items():
        shown = [Path(argument).name if Path(argument).is_absolute() else argument for argument in arguments]
        parts.append(f"    python -m benchmarks.{shlex.join(shown)}\n")
        lines = (out / f"{table}.md").read_text(encoding="utf-8").splitlines()
        parts.append("\n".join(line if line.startswith("|") else fill(line, 100) for line in lines) + "\n")
        parts.append(f"![{table}](figures/benchmark_{table}.png)\n")
    return "\n".join(parts)


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    command_line.add_argument("--senteval-dir", default=os.environ.get("SENTEVAL_DIR"))
    command_line.add_argument("--triplets", help="file of triplets (`simcse prepare nli` writes one)")
    arguments = command_line.parse_args()
    run = commands(arguments.senteval_dir, arguments.triplets)
    measured_with = versions()  # the figures below are changes of the clone
    for table, (name, *options) in run.items():
        command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{name}", *options, "--out", str(arguments.out)]
        subprocess.run(command, check=True)
        shutil.copy(arguments.out / f"{table}.png", _FIGURES / f"benchmark_{table}.png")
    _PAGE.write_text(page(arguments.out, run, measured_with), encoding="utf-8")


if __name__ == "__main__":
    main()
