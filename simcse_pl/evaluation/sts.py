"""The STS protocol of the paper: Spearman's correlation of cosine and human score, over all pairs of a task."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor

from simcse_pl.data.sts import ScoredPair, StsTask

Encode = Callable[[list[str]], Tensor]


@dataclass(frozen=True)
class StsResult:
    """A task's score.

    Args:
        task: its name.
        pairs: how many pairs it has.
        spearman: the correlation over all pairs of all subsets together ("all"), in [-1, 1].
        subsets: every subset's own correlation.
    """

    task: str
    pairs: int
    spearman: float
    subsets: dict[str, float]


def evaluate_sts(encode: Encode, tasks: Sequence[StsTask]) -> list[StsResult]:
    """Spearman's correlation, without a regressor, aggregated over "all" pairs of a task (Appendix B).

    Args:
        encode: sentences to vectors [n, dim]; it is called once, with each distinct sentence once.
        tasks: what to measure on.

    Returns:
        A result a task, in the order given.
    """
    sentences = sorted({sentence for task in tasks for pair in task.pairs for sentence in (pair.first, pair.second)})
    vectors = F.normalize(encode(sentences).double(), dim=-1)
    row = {sentence: i for i, sentence in enumerate(sentences)}

    def spearman(pairs: Sequence[ScoredPair]) -> float:
        first = vectors[[row[pair.first] for pair in pairs]]
        second = vectors[[row[pair.second] for pair in pairs]]
        cosines = (first * second).sum(dim=-1)
        return float(spearmanr(cosines.numpy(), [pair.score for pair in pairs]).statistic)

    return [
        StsResult(
            task.name,
            len(task.pairs),
            spearman(task.pairs),
            {name: spearman(pairs) for name, pairs in task.subsets.items()},
        )
        for task in tasks
    ]
