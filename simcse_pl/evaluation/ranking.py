"""Evaluators of rankings by cosine: pairs with labels, retrieval, and translations."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt

from simcse_pl.data.labels import NEUTRAL
from simcse_pl.evaluation.evaluators import EvaluationFile, FileEvaluator, Files, LabelledPairs
from simcse_pl.evaluation.sts import ScoredPair
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import (
    DOCUMENT,
    QUERY,
    Encode,
    cosine_similarity,
    encode_columns,
    unit_vectors,
    with_prompt,
)


class BinaryPairs(LabelledPairs):
    """Pairs of sentences with the label 1 (such as paraphrases) or 0. Of the labels of NLI, entailment is 1.

    The metrics are `average_precision`, of ranking the pairs by their cosine, and `accuracy`, at the threshold that is
    best for the same pairs.

    Args:
        validation, test: a file of two sentences and a label, files by name, or None.
        reading: see FileEvaluator.

    Raises:
        UserError: a file cannot be read, a label is neither 0 nor 1, or a file has one label only.
    """

    labels: Mapping[float, float] = {0.0: 0.0, NEUTRAL: 0.0, 1.0: 1.0}

    def measure(self, encode: Encode, data: list[ScoredPair]) -> dict[str, float]:
        """Return the average precision and the accuracy."""
        from sklearn.metrics import average_precision_score, roc_curve  # slow to import

        labels = np.array([pair.score for pair in data])
        columns = encode_columns(encode, [pair.first for pair in data], [pair.second for pair in data])
        scores = cosine_similarity(*columns).numpy()
        false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
        accuracies = true * labels.mean() + (1 - false) * (1 - labels.mean())  # of each threshold
        precision = average_precision_score(labels, scores)
        return {"average_precision": float(precision), "accuracy": float(accuracies.max())}


class Retrieval(FileEvaluator[dict[str, list[str]]]):
    """Queries and their positives among all positives of a file, ranked by cosine.

    The metrics are `recall@k`, the mean share of a query's positives among its k nearest; `mrr`, the mean reciprocal
    rank of the nearest positive; and `ndcg@k` for the largest k. A sentence that equals its query is neither a positive
    nor ranked. Queries have the encoder's prompt `query`, and positives `document`, if it has them.

    Args:
        validation, test: a file, files by name, or None. Each row is a query and one or more positives; rows with the
            same query are joined.
        top_k: the values of k.
        reading: see FileEvaluator.

    Raises:
        UserError: a file cannot be read, or a row has no query or no positive other than the query.
    """

    def __init__(
        self, validation: Files = None, test: Files = None, top_k: Sequence[PositiveInt] = (1, 5, 10), **reading: Any
    ) -> None:
        self.top_k = sorted(top_k)
        super().__init__(validation, test, **reading)

    def read(self, file: EvaluationFile) -> dict[str, list[str]]:
        """Read the positives of each query."""
        positives: dict[str, list[str]] = {}
        for (query, *cells), _ in file.rows():
            others = [cell for cell in cells if cell not in ("", query)]
            if not query or not others:
                raise UserError(f"{file.file}: the query {query!r} needs a positive other than itself")
            positives.setdefault(query, []).extend(others)
        return {query: list(dict.fromkeys(others)) for query, others in positives.items()}

    def sentences_of(self, data: dict[str, list[str]]) -> list[str]:
        """Return the queries and the positives."""
        return [*data, *(positive for others in data.values() for positive in others)]

    def by_prompt(self, split: str) -> Mapping[str | None, Sequence[str]]:
        """Return the queries and the positives by their prompts."""
        files = self.sets[split].values()
        positives = [positive for data in files for others in data.values() for positive in others]
        return {QUERY: [query for data in files for query in data], DOCUMENT: positives}

    def measure(self, encode: Encode, data: dict[str, list[str]]) -> dict[str, float]:
        """Return recall, mean reciprocal rank and normalized discounted cumulative gain."""
        corpus = list(dict.fromkeys(positive for others in data.values() for positive in others))
        row = {sentence: number for number, sentence in enumerate(corpus)}
        queries = unit_vectors(with_prompt(encode, QUERY)(list(data)))
        vectors = unit_vectors(with_prompt(encode, DOCUMENT)(corpus))
        metrics: dict[str, list[float]] = {}
        for query, vector in zip(data, queries, strict=True):
            cosines = vectors @ vector
            if query in row:
                cosines[row[query]] = -math.inf
            relevant = torch.zeros(len(corpus), dtype=torch.bool)
            relevant[[row[positive] for positive in data[query]]] = True
            ranks = relevant[cosines.argsort(descending=True, stable=True)].nonzero().flatten() + 1
            values = {f"recall@{k}": float((ranks <= k).float().mean()) for k in self.top_k}
            values["mrr"] = 1 / int(ranks[0])
            k = self.top_k[-1]
            ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(ranks)) + 1))
            values[f"ndcg@{k}"] = sum(1 / math.log2(int(rank) + 1) for rank in ranks if rank <= k) / ideal
            for metric, value in values.items():
                metrics.setdefault(metric, []).append(value)
        return {metric: float(np.mean(values)) for metric, values in metrics.items()}


class Bitext(FileEvaluator[list[tuple[str, str]]]):
    """Sentences and their translations: each is searched for among all, by cosine, as in Tatoeba and BUCC.

    The metrics are `accuracy`, the share of sentences whose nearest translation is their own or equal to it;
    `reverse_accuracy`, that of translations; and `f1` as MTEB defines it: for each translation, the F1 of the sentences
    that are nearest to it, and the mean of these, weighted by the number of its sentences.

    Args:
        validation, test: a file of two columns, files by name, or None.
        reading: see FileEvaluator.
    """

    def read(self, file: EvaluationFile) -> list[tuple[str, str]]:
        """Read a sentence and its translation from each row."""
        return [(first, second) for (first, second), _ in file.pairs()]

    def sentences_of(self, data: list[tuple[str, str]]) -> list[str]:
        """Return all sentences and translations."""
        return [sentence for pair in data for sentence in pair]

    def measure(self, encode: Encode, data: list[tuple[str, str]]) -> dict[str, float]:
        """Return accuracy in both directions, and F1."""
        from sklearn.metrics import f1_score  # slow to import

        sides = [list(side) for side in zip(*data, strict=True)]
        first, second = (unit_vectors(x) for x in encode_columns(encode, *sides))
        nearest = _nearest(first, second, sides[1])
        return {
            "accuracy": float(np.mean(np.array(nearest) == np.array(sides[1]))),
            "reverse_accuracy": float(np.mean(np.array(_nearest(second, first, sides[0])) == np.array(sides[0]))),
            "f1": float(f1_score(sides[1], nearest, average="weighted", zero_division=0)),
        }


def _nearest(queries: torch.Tensor, corpus: torch.Tensor, texts: Sequence[str]) -> list[str]:
    """Return the text whose unit vector is nearest to each query's."""
    places = torch.cat([(rows @ corpus.T).argmax(dim=1) for rows in queries.split(4096)])
    return [texts[place] for place in places.tolist()]
