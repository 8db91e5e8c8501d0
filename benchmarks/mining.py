"""Hard negatives: scores after training with negatives of several kinds, over seeds.

    python -m benchmarks.mining --senteval-dir SentEval/data/downstream

The first 3 layers of the packaged encoder are trained on the premises and entailments of the project's sample. The
whole encoder mines the negatives among the entailments of other premises (`simcse mine`).
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import PACKAGED
from benchmarks.over_seeds import figure, options, table, train_all
from simcse_pl.data import sample
from simcse_pl.reports.evaluation_report import save
from simcse_pl.utils.tables import show

TRIPLETS = sample.path("nli.csv")
MINED = {  # options of `simcse mine`
    "random sentences": ("--choice", "random"),
    "nearest sentences": (),
    "nearest, --skip-top 2 --margin 0.1": ("--skip-top", "2", "--margin", "0.1"),
}


def mine(out: Path, *how: str) -> None:
    """Write a file of triplets with mined negatives."""
    command = [sys.executable, "-m", "simcse_pl", "mine", PACKAGED, TRIPLETS, str(out), "--columns", "sent0", "sent1"]
    subprocess.run([*command, *how], check=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = options(__doc__, steps=60).parse_args(arguments)
    columns = {"no hard negatives": "[sent0,sent1]", "contradictions of the data": "[sent0,sent1,hard_neg]"}
    data = {way: (f"data.train={TRIPLETS}", f"data.columns={own}") for way, own in columns.items()}
    with TemporaryDirectory() as folder:
        for number, (way, how) in enumerate(MINED.items()):
            mine(mined := Path(folder, f"{number}.csv"), *how)
            data[way] = (f"data.train={mined}",)
        order = ["no hard negatives", *MINED, "contradictions of the data"]
        options_of = {way: ("data=text", "data.batch_size=32", *data[way]) for way in order}
        before, after = train_all(options_of, given)
    note = f"3 layers of all-MiniLM-L6-v2, mean pooling, {given.steps} steps of 32 rows; 800 NLI pairs of the project"
    fixed = {"before training": before[order[0]]}
    made = table("mining", "Hard negatives, Spearman x 100", fixed, after, [note])
    show(made.printed())
    save(given.out, [made], {"mining": figure(fixed, after)})


if __name__ == "__main__":
    main()
