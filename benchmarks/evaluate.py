"""Evaluation: STS in sentence-transformers' way and in ours, and a transfer task in SentEval's way and in ours.

    python -m benchmarks.evaluate --senteval-dir SentEval/data/downstream
    python -m benchmarks.evaluate --senteval-dir SentEval/data/downstream --transfer MR

STS is timed from sentences to correlations: sentence-transformers' evaluator encodes the two sides of each subset's
pairs, ours every distinct sentence of all tasks once. A transfer task is timed from embeddings to accuracy, once and
without a round before: SentEval's way is scikit-learn's LogisticRegression in a loop over outer folds, strengths and
inner folds, and takes minutes; ours solves them together.
"""

import logging
import os
from functools import partial
from statistics import mean

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from benchmarks.comparison import PACKAGED, Way, comparison, in_turn, parser_of_rounds, save, timed
from simcse_pl.data.senteval.transfer_sets import TransferTask, load_transfer_task
from simcse_pl.evaluation.encoding import EncodeOnce
from simcse_pl.evaluation.suite import Suite, evaluate_suite, load_suite
from simcse_pl.evaluation.transfer import FOLDS, SEED, STRENGTHS, evaluate_transfer
from simcse_pl.models.backbone import resolve
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.utils.tables import Table

NESTED = ("MR", "CR", "SUBJ", "MPQA")


def sts(suite: Suite, encoder: SentenceEncoder, rounds: int) -> Table:
    """Both ways on all STS tasks, and the scores that came out."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    theirs = SentenceTransformer(resolve(PACKAGED), device="cpu")
    evaluators = [
        EmbeddingSimilarityEvaluator(*zip(*((pair.first, pair.second, pair.score) for pair in pairs), strict=True))
        for task in suite.sts
        for pairs in task.subsets.values()
    ]
    scores: dict[str, list[float]] = {}

    def sentence_transformers_way() -> None:
        scores["theirs"] = [float(evaluator(theirs)["spearman_cosine"]) for evaluator in evaluators]

    def our_way(bf16: bool) -> None:
        encode = EncodeOnce(partial(encoder.encode, bf16=bf16), suite.sentences())
        results = evaluate_suite(encode, suite)
        scores[f"ours {bf16}"] = [own.spearman for task in results.sts for own in task.subsets.values()]

    ways = [
        Way("sentence-transformers", partial(timed, sentence_transformers_way)),
        Way("simcse_pl, float32", partial(timed, partial(our_way, False))),
        Way("simcse_pl, bf16", partial(timed, partial(our_way, True))),
    ]
    seconds = in_turn(ways, rounds)
    pairs = sum(len(task.pairs) for task in suite.sts)
    averages = ", ".join(f"{100 * mean(own):.2f}" for own in scores.values())
    names = ", ".join(task.name for task in suite.sts)
    notes = [f"{names}: {len(evaluators)} subsets, {pairs} pairs; mean Spearman x 100 of the subsets: {averages}"]
    return comparison("evaluate_sts", "Evaluation on STS", "pairs/s", seconds, pairs, notes=notes)


def transfer(task: TransferTask, encoder: SentenceEncoder) -> Table:
    """Both ways over the same embeddings."""
    examples = task.splits["all"]
    encode = EncodeOnce(partial(encoder.encode, progress=True), [example.sentences[0] for example in examples])
    x = encode([example.sentences[0] for example in examples]).numpy()
    y = np.array([example.label for example in examples])
    accuracies: list[float] = []
    ways = [
        Way("SentEval's, scikit-learn", partial(timed, lambda: accuracies.append(sentevals_way(x, y)))),
        Way("simcse_pl", partial(timed, lambda: accuracies.append(evaluate_transfer(encode, task).accuracy))),
    ]
    seconds = in_turn(ways, rounds=1, warm_up=False)
    note = f"{task.name}, {len(x)} sentences; accuracy x 100: {', '.join(f'{100 * own:.2f}' for own in accuracies)}"
    return comparison("evaluate_transfer", "Evaluation on a transfer task", "tasks/min", seconds, 60, notes=[note])


def sentevals_way(x: np.ndarray, y: np.ndarray) -> float:
    """Accuracy of nested cross-validation, one classifier after the other."""
    folds = StratifiedKFold(n_splits=FOLDS, shuffle=True, random_state=SEED)
    scores = []
    for train, test in track(list(folds.split(x, y)), "SentEval's way", console=Console(stderr=True), transient=True):
        by_strength = {}
        for strength in STRENGTHS:
            inner = []
            for fit, held in folds.split(x[train], y[train]):
                classifier = LogisticRegression(C=strength, random_state=SEED)
                classifier.fit(x[train][fit], y[train][fit])
                inner.append(classifier.score(x[train][held], y[train][held]))
            by_strength[strength] = round(100 * np.mean(inner), 2)
        best = LogisticRegression(C=max(by_strength, key=by_strength.__getitem__), random_state=SEED)
        scores.append(best.fit(x[train], y[train]).score(x[test], y[test]))
    return float(np.mean(scores))


def main() -> None:
    """The command line."""
    command_line = parser_of_rounds(__doc__)
    command_line.add_argument(
        "--senteval-dir", default=os.environ.get("SENTEVAL_DIR"), help="where not set, the project's sample is measured"
    )
    command_line.add_argument("--tasks", nargs="+", default=["sts"])
    command_line.add_argument("--transfer", choices=NESTED, help="a task to classify, in place of STS")
    arguments = command_line.parse_args()
    if arguments.transfer and not arguments.senteval_dir:
        command_line.error("--transfer needs --senteval-dir")
    for name in ("sentence_transformers", "httpx"):
        logging.getLogger(name).setLevel(logging.ERROR)
    encoder = SentenceEncoder.from_pretrained(PACKAGED)
    torch.manual_seed(42)
    if arguments.transfer:
        save(arguments.out, transfer(load_transfer_task(arguments.senteval_dir, arguments.transfer), encoder))
    else:
        save(arguments.out, sts(load_suite(arguments.tasks, arguments.senteval_dir), encoder, arguments.rounds))


if __name__ == "__main__":
    main()
