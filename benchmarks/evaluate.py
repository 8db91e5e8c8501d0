"""Evaluation on STS: pairs per second of sentence-transformers' evaluator and of simcse_pl.

    python -m benchmarks.evaluate --senteval-dir SentEval/data/downstream

The time is from sentences to correlations. The evaluator encodes both sides of each subset's pairs; simcse_pl encodes
each distinct sentence of all tasks once.
"""

import logging
import os
from functools import partial
from statistics import mean

from benchmarks.common import PACKAGED, comparison, in_turn, parser, save, timed
from simcse_pl.evaluation.suite import encode_once, evaluate_suite, load_suite
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.sources import resolve


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__)
    bundle = os.environ.get("SENTEVAL_DIR")
    command_line.add_argument("--senteval-dir", default=bundle, help="SentEval bundle (default: the project's sample)")
    command_line.add_argument("--tasks", nargs="+", default=["sts"])
    arguments = command_line.parse_args()
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    for name in ("sentence_transformers", "httpx"):
        logging.getLogger(name).setLevel(logging.ERROR)
    suite = load_suite(arguments.tasks, arguments.senteval_dir)
    encoder = SentenceEncoder.from_pretrained(PACKAGED)
    theirs = SentenceTransformer(resolve(PACKAGED), device="cpu")
    evaluators = [
        EmbeddingSimilarityEvaluator(*zip(*((pair.first, pair.second, pair.score) for pair in pairs), strict=True))
        for task in suite.sts
        for pairs in task.subsets.values()
    ]
    scores: dict[str, list[float]] = {}

    def evaluator() -> None:
        scores["theirs"] = [float(own(theirs)["spearman_cosine"]) for own in evaluators]

    def ours(bf16: bool) -> None:
        results = evaluate_suite(encode_once(partial(encoder.encode, bf16=bf16)), suite)
        scores[f"ours {bf16}"] = [own.spearman for task in results.sts for own in task.subsets.values()]

    ways = {
        "sentence-transformers": evaluator,
        "simcse_pl, float32": partial(ours, False),
        "simcse_pl, bf16": partial(ours, True),
    }
    seconds = in_turn({name: partial(timed, way) for name, way in ways.items()}, arguments.rounds)
    pairs = sum(len(task.pairs) for task in suite.sts)
    averages = ", ".join(f"{100 * mean(own):.2f}" for own in scores.values())
    names = ", ".join(task.name for task in suite.sts)
    size = f"{names}, subsets: {len(evaluators)}, pairs: {pairs}"
    note = f"{size}; mean Spearman x 100 over subsets, for the ways in order: {averages}"
    save(arguments.out, comparison("evaluate_sts", "Evaluation on STS", "pairs/s", seconds, pairs, notes=[note]))


if __name__ == "__main__":
    main()
