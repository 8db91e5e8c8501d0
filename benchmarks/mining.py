"""Hard negatives: scores after training with negatives of several kinds, over seeds.

    python -m benchmarks.mining --senteval-dir SentEval/data/downstream
    python -m benchmarks.mining --senteval-dir SentEval/data/downstream --triplets snli.csv

The first 3 layers of the packaged encoder are trained on pairs of a premise and an entailment. The whole encoder mines
their negatives among the entailments of other premises (`simcse mine`).
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import PACKAGED
from benchmarks.over_seeds import figure, options, table, train_all
from simcse_pl.data import sample
from simcse_pl.reports.evaluation_report import save
from simcse_pl.utils.terminal import show

STUDENT = ("model=minilm_3_layers", "model.head=mlp_train_only", "optimizer.lr=2e-4")
MINED = {  # options of `simcse mine`
    "random sentences": ("--choice", "random"),
    "nearest sentences": (),
    "nearest, --skip-top 2 --margin 0.1": ("--skip-top", "2", "--margin", "0.1"),
}


def data_of(triplets: str, folder: Path) -> dict[str, tuple[str, str]]:
    """Return the options of the training data by the kind of negatives, and write mined ones to a folder."""
    data = {"no hard negatives": (f"data.train={triplets}", "data.columns=[0,1]")}
    for number, (kind, how) in enumerate(MINED.items()):
        command = ["mine", PACKAGED, triplets, str(mined := folder / f"{number}.csv"), *how]
        subprocess.run([sys.executable, "-m", "simcse_pl", *command], check=True)
        data[kind] = (f"data.train={mined}", "data.columns=[0,1,2]")
    return data | {"contradictions of the data": (f"data.train={triplets}", "data.columns=[0,1,2]")}


def main() -> None:
    """Run the command line."""
    command_line = options(__doc__, steps=60)
    about = "file of premises, entailments and contradictions (default: the project's 800)"
    command_line.add_argument("--triplets", default=sample.path("nli.csv"), help=about)
    given = command_line.parse_args()
    with TemporaryDirectory() as folder:
        data = data_of(given.triplets, Path(folder))
        ways = {kind: ("data=text", "data.batch_size=32", *STUDENT, *own) for kind, own in data.items()}
        before, after = train_all(ways, given)
    note = (
        f"3 layers of all-MiniLM-L6-v2 ({before['no hard negatives'].dev:.2f} on dev before training), mean pooling, "
        f"{given.steps} steps of 32 rows of {Path(given.triplets).name}"
    )
    made = table("mining", "Hard negatives, Spearman x 100", {}, after, [note])
    show(made.printed())
    save(given.out, [made], {"mining": figure({}, after)})


if __name__ == "__main__":
    main()
