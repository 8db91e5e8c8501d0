"""Evaluation on a transfer task: time from embeddings to accuracy, SentEval's loop over scikit-learn and simcse_pl.

    python -m benchmarks.transfer --senteval-dir SentEval/data/downstream

SentEval fits scikit-learn's LogisticRegression in a loop over outer folds, values of C and inner folds, which takes
minutes; simcse_pl solves all problems together. Each way runs once.
"""

import os
from functools import partial

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from benchmarks.common import PACKAGED, comparison, in_turn, parser, save, timed
from simcse_pl.evaluation.suite import encode_once
from simcse_pl.lab.transfer import C_GRID, FOLDS, SEED, load_transfer_task
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.terminal import tracked


def nested_cross_validation(x: np.ndarray, y: np.ndarray) -> float:
    """Return the accuracy of nested cross-validation, one classifier after the other."""
    folds = StratifiedKFold(n_splits=FOLDS, shuffle=True, random_state=SEED)
    scores = []
    for train, test in tracked(list(folds.split(x, y)), "SentEval's way"):
        by_c = {}
        for c in C_GRID:
            inner = []
            for fit, held in folds.split(x[train], y[train]):
                classifier = LogisticRegression(C=c, random_state=SEED).fit(x[train][fit], y[train][fit])
                inner.append(classifier.score(x[train][held], y[train][held]))
            by_c[c] = round(100 * np.mean(inner), 2)
        best = LogisticRegression(C=max(by_c, key=by_c.__getitem__), random_state=SEED)
        scores.append(best.fit(x[train], y[train]).score(x[test], y[test]))
    return float(np.mean(scores))


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    bundle = os.environ.get("SENTEVAL_DIR")
    command_line.add_argument("--senteval-dir", default=bundle, required=not bundle)
    command_line.add_argument("--task", choices=("MR", "CR", "SUBJ", "MPQA"), default="MR")
    arguments = command_line.parse_args()
    task = load_transfer_task(arguments.senteval_dir, arguments.task)
    sentences = [example.sentences[0] for example in task.splits["all"]]
    encoder = SentenceEncoder.from_pretrained(PACKAGED)
    encode = encode_once(partial(encoder.encode, progress=True))
    x, y = encode(sentences).numpy(), np.array([example.label for example in task.splits["all"]])
    accuracies: list[float] = []
    ways = {
        "SentEval's, scikit-learn": partial(timed, lambda: accuracies.append(nested_cross_validation(x, y))),
        "simcse_pl": partial(timed, lambda: accuracies.append(task(encode).accuracy)),
    }
    seconds = in_turn(ways, rounds=1, warm_up=False)
    note = f"{task.name}, {len(x)} sentences; accuracy x 100: {', '.join(f'{100 * own:.2f}' for own in accuracies)}"
    title = "Evaluation on a transfer task"
    save(arguments.out, comparison("evaluate_transfer", title, "tasks/min", seconds, 60, notes=[note]))


if __name__ == "__main__":
    main()
