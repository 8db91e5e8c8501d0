"""Start-up: seconds of imports, of `--help` and of mistakes, each in a process of its own.

    python -m benchmarks.startup

sentence-transformers is included if it is installed.
"""

import functools
import importlib.util
import subprocess
import sys
from statistics import median

import pandas as pd

from benchmarks.common import PACKAGED, parser
from benchmarks.comparison import in_turn, save, timed
from simcse_pl.utils.tables import Table

IMPORTS = {
    "import torch, transformers": "import torch, transformers",
    "from simcse_pl import SimCSE": "from simcse_pl import SimCSE",
    "from sentence_transformers import SentenceTransformer": "from sentence_transformers import SentenceTransformer",
}
COMMANDS = (
    ["--help"],
    ["train", "--help"],
    ["train", "modle=bert"],
    ["train", "model.poolin=mean"],
    ["train", "model.num_layers=three"],
    ["evaluate", "--help"],
    ["encode", "--help"],
    ["search", "--help"],
    ["info", "no_folder"],
    ["info", PACKAGED],
)


def starts() -> dict[str, list[str]]:
    """Return the arguments of Python for each start, by name."""
    given = {name: ["-c", code] for name, code in IMPORTS.items()}
    if importlib.util.find_spec("sentence_transformers") is None:
        del given["from sentence_transformers import SentenceTransformer"]
    return given | {" ".join(["simcse", *command]): ["-m", "simcse_pl", *command] for command in COMMANDS}


def main() -> None:
    """Run the command line."""
    given = parser(__doc__).parse_args()

    def start(arguments: list[str]) -> float:
        return timed(lambda: subprocess.run([sys.executable, *arguments], capture_output=True))

    ways = {name: functools.partial(start, own) for name, own in starts().items()}
    seconds = in_turn(ways, given.rounds)
    first = next(iter(seconds.values()))
    rows = [
        {
            "start": name,
            "s": median(own),
            "lowest": min(own),
            "highest": max(own),
            "times the first": median(mine / theirs for mine, theirs in zip(own, first, strict=True)),
        }
        for name, own in seconds.items()
    ]
    save(given.out, Table("startup", "Start-up", pd.DataFrame(rows), notes=[f"{given.rounds} rounds"]))


if __name__ == "__main__":
    main()
