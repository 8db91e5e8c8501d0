"""Start of train.py: seconds from the command and from its imports to the first step.

    python -m benchmarks.first_step

The text is a million lines, see benchmarks/data.py; W&B is offline, and validation is on the project's sample.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytorch_lightning as pl

from benchmarks.common import parser, run_json, write_lines
from benchmarks.comparison import save
from simcse_pl.utils.tables import Table

_CALLBACK = "+callbacks.first_step"


class FirstStep(pl.Callback):
    """Prints the seconds to the first step, since `begin` and since the callback was made.

    Args:
        begin: seconds since the epoch.
    """

    def __init__(self, begin: float) -> None:
        self.begins = {"s from the command": begin, "s after the imports": time.time()}

    def on_train_batch_start(self, *_: Any) -> None:
        """Print them as a line of JSON."""
        print(json.dumps({name: time.time() - begin for name, begin in self.begins.items()}), flush=True)


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    command_line.add_argument("--lines", type=int, default=1_000_000)
    arguments = command_line.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        source = write_lines(Path(folder) / "text.txt", arguments.lines)
        own = {"XDG_CACHE_HOME": f"{folder}/cache", "WANDB_MODE": "offline", "WANDB_SILENT": "true", "SENTEVAL_DIR": ""}
        for start in ("cold", "warm"):
            options = ["data=text", f"data.train={source}", "trainer.max_steps=1", f"hydra.run.dir={folder}/{start}"]
            options += [f"{_CALLBACK}._target_=benchmarks.first_step.FirstStep", f"{_CALLBACK}.begin={time.time()}"]
            row = run_json("train.py", *options, environment=own)
            found.append({"lines, start": f"{arguments.lines:,}, {start}", **row})
    save(arguments.out, Table("first_step", "From the command to the first step", pd.DataFrame(found)))


if __name__ == "__main__":
    main()
