"""The STS protocol: correlation of cosine similarities with human scores (Appendix B of the paper)."""

import numpy as np

from simcse_pl.data.evaluation import encode_columns
from simcse_pl.data.senteval.sts_sets import StsTask
from simcse_pl.evaluation.metrics import correlation
from simcse_pl.results.evaluation_results import Correlation, StsScores
from simcse_pl.utils.tensors import Encode, cosine_similarity


def evaluate_sts(encode: Encode, task: StsTask) -> StsScores:
    """Return the correlations of cosines and human scores; `encode` is called once, with the distinct sentences."""
    columns = [pair.first for pair in task.pairs], [pair.second for pair in task.pairs]
    predicted = cosine_similarity(*encode_columns(encode, *columns)).numpy()
    human = np.array([pair.score for pair in task.pairs])
    subsets, start = {}, 0
    for name, pairs in task.subsets.items():
        rows = slice(start, start + len(pairs))
        subsets[name] = correlation(predicted[rows], human[rows])
        start += len(pairs)
    scores = np.array([(subset.spearman, subset.pearson) for subset in subsets.values()])
    weights = None, [len(pairs) for pairs in task.subsets.values()]
    averages = (np.average(scores, axis=0, weights=own).tolist() for own in weights)
    mean, wmean = (Correlation(spearman=spearman, pearson=pearson) for spearman, pearson in averages)
    return StsScores(
        task=task.name,
        split=task.split,
        pairs=len(task.pairs),
        all=correlation(predicted, human),
        mean=mean,
        wmean=wmean,
        subsets=subsets,
    )
