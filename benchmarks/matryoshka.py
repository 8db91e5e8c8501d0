"""Scores by the number of dimensions: SimCSE trained with and without Matryoshka, over seeds.

    python -m benchmarks.matryoshka --senteval-dir SentEval/data/downstream

Both objectives train the packaged encoder (6 layers, [CLS]) on sentences of Wikipedia from the same seeds. The vectors
of each best checkpoint are cut to their first dimensions. Differences are paired over seeds.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.common import PACKAGED
from benchmarks.over_seeds import options, train
from simcse_pl.evaluation.encoding import EncodeOnce
from simcse_pl.evaluation.suite import evaluate_at_dims, load_suite
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.evaluation_report import save
from simcse_pl.reports.figures.style import COLOURS, DASHES, MARKERS, STYLE, WIDTH
from simcse_pl.reports.sweeps.paired import Difference
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import show

OBJECTIVES = ("simcse", "matryoshka")
DIMS = (384, 192, 96, 48, 24)


def scores_by_dim(encoder: SentenceEncoder, senteval_dir: str | None) -> dict[int, float]:
    """Return Spearman x 100 on the dev split by the number of dimensions."""
    suite = load_suite(["STS-B" if senteval_dir else "sts"], senteval_dir, split="dev")
    found = evaluate_at_dims(EncodeOnce(encoder.encode, suite.sentences()), suite, DIMS)
    return {int(dim): 100 * own.sts[0].all.spearman for dim, own in found.items()}


def table(scores: Mapping[str, pd.DataFrame], before: Mapping[int, float], note: str) -> Table:
    """Return means over seeds with the lowest and the highest, and the paired differences.

    Args:
        scores: by objective, a row per seed and a column per number of dimensions.
        before: the scores before training.
        note: what was trained.
    """
    rows = []
    for dim in DIMS:
        row: dict[str, float] = {"dimensions": dim, "before training": before[dim]}
        for objective, own in scores.items():
            found = {"": own[dim].mean(), ", lowest": own[dim].min(), ", highest": own[dim].max()}
            row |= {f"{objective}{what}": score for what, score in found.items()}
        first, second = (scores[objective][dim] for objective in OBJECTIVES)
        difference = Difference(second - first)
        rows.append(row | {"difference": difference.mean, "+-": difference.margin})
    notes = [note, "+-: half the width of the 95 % t-interval of the difference, paired over seeds"]
    decimals = {column: 0 if column == "dimensions" else 2 for column in rows[0]}
    return Table("matryoshka", "Spearman x 100 on the dev split, by dimensions", pd.DataFrame(rows), decimals, notes)


@matplotlib.rc_context(STYLE)
def figure(scores: Mapping[str, pd.DataFrame], before: Mapping[int, float]) -> Figure:
    """Draw mean scores, and the differences of the seeds, against the number of dimensions."""
    drawn = Figure((WIDTH, 0.5 * WIDTH), layout="constrained")
    left, right = drawn.subplots(ncols=2, width_ratios=(3, 2))
    for objective, colour, dashes, marker in zip(OBJECTIVES, COLOURS, DASHES, MARKERS, strict=False):
        mean = scores[objective].mean()[list(DIMS)]
        left.plot(DIMS, mean, color=colour, linestyle=dashes, marker=marker, markersize=4, label=objective)
    left.plot(DIMS, [before[dim] for dim in DIMS], color=COLOURS[-1], linestyle=":", label="before training")
    left.set_title("dev split, Spearman x 100, mean over seeds")
    drawn.legend(loc="outside lower center", ncols=3)
    differences = scores["matryoshka"] - scores["simcse"]
    for dim in DIMS:
        right.plot([dim] * len(differences), differences[dim], "o", color=COLOURS[2], markersize=4, alpha=0.6)
    right.plot(DIMS, differences.mean()[list(DIMS)], "_", color=COLOURS[0], markersize=14)
    right.axhline(0, color=COLOURS[-1], linewidth=0.6)
    right.set_title("gain of matryoshka: seeds, and mean")
    right.margins(x=0.1)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(DIMS, [str(dim) for dim in DIMS])
        axes.minorticks_off()
        axes.set_xlabel("dimensions kept, from the first")
    return drawn


def main() -> None:
    """Run the command line."""
    given = options(__doc__, steps=200).parse_args()
    fixed = ("setting=unsupervised", "model.head=none", "data=wiki_sample", "data.batch_size=32")
    rows: dict[str, dict[int, dict[int, float]]] = {objective: {} for objective in OBJECTIVES}
    with TemporaryDirectory() as folder:
        for seed in given.seeds:
            for objective in OBJECTIVES:
                train(run := Path(folder, f"{objective}-{seed}"), given, seed, *fixed, f"objective={objective}")
                encoder = SentenceEncoder.from_pretrained(run / "encoder")
                rows[objective][seed] = scores_by_dim(encoder, given.senteval_dir)
                print(objective, seed, json.dumps(rows[objective][seed]), flush=True)
    scores = {objective: pd.DataFrame(own).T for objective, own in rows.items()}
    before = scores_by_dim(SentenceEncoder.from_pretrained(PACKAGED, "cls"), given.senteval_dir)
    data = "STS-B" if given.senteval_dir else "the project's sample"
    seeds = ", ".join(map(str, given.seeds))
    trained = f"all-MiniLM-L6-v2 with [CLS], {given.steps} steps of 32 rows, seeds {seeds}"
    note = f"{data}, on which the checkpoints were chosen, too; {trained}"
    made = table(scores, before, note)
    show(made.printed())
    save(given.out, [made], {"matryoshka": figure(scores, before)})


if __name__ == "__main__":
    main()
