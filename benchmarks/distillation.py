"""Distillation of 6 layers to 3: scores of a student without training, and after each way to train it, over seeds.

    python -m benchmarks.distillation --senteval-dir SentEval/data/downstream

The student is the first 3 layers of the packaged encoder, and the teacher the whole encoder. All ways train on the same
sentences of Wikipedia, for the same number of steps.
"""

from benchmarks.common import PACKAGED
from benchmarks.over_seeds import figure, options, scores_of, table, train_all
from simcse_pl.reports.evaluation_report import save
from simcse_pl.utils.terminal import show

DISTILLATION = (f"objective.teacher={PACKAGED}", "model.head=none", "optimizer.lr=1e-3")
STUDENT = ("data=wiki_sample", "model=minilm_3_layers")
WAYS = {
    "SimCSE": ("model.head=mlp_train_only", "optimizer.lr=3e-5"),
    "distillation, MSE": ("objective=distillation", *DISTILLATION),
    "distillation, cosine": ("objective=distillation", "objective.loss=cosine", *DISTILLATION),
    # A part of each sentence is its positive, and the next sentence its negative.
    "margin-MSE": (
        *("objective=margin_mse", *DISTILLATION),
        *("views=[crop,next_sentence]", "views.next_sentence.role=negative"),
    ),
}


def main() -> None:
    """Run the command line."""
    given = options(__doc__, steps=300).parse_args()
    before, after = train_all({way: (*STUDENT, *own) for way, own in WAYS.items()}, given)
    fixed = {"before training": before["SimCSE"], "teacher": scores_of(PACKAGED, given.senteval_dir)}
    note = f"3 of 6 layers of all-MiniLM-L6-v2, mean pooling, {given.steps} steps of 64 sentences of Wikipedia"
    made = table("distillation", "6 layers to 3, Spearman x 100", fixed, after, [note])
    show(made.printed())
    save(given.out, [made], {"distillation": figure(fixed, after)})


if __name__ == "__main__":
    main()
