"""Evaluators of rankings by cosine: pairs with labels, retrieval, candidates of each query, and translations."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, PositiveInt

from simcse_pl.data.labels import NEUTRAL
from simcse_pl.evaluation.evaluators import EvaluationFile, FileEvaluator, Files, LabelledPairs
from simcse_pl.evaluation.judgements import Judgements, RetrievalFile, judgements_of_texts
from simcse_pl.evaluation.sts import ScoredPair
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import DOCUMENT, QUERY, Encode, cosine_similarity, encode_columns, unit_vectors

_COSINES = 2**26  # of queries and documents at once: 256 MB
_ROUNDING = 1e-6  # cosines that differ less are equal
Metric = Annotated[str, Field(pattern=r"^(accuracy|map|mrr|ndcg|recall)(@[1-9]\d*)?$")]


class BinaryPairs(LabelledPairs):
    """Pairs of sentences with the label 1 (such as paraphrases) or 0. Of the labels of NLI, entailment is 1.

    The metrics are `average_precision`, of ranking the pairs by their cosine, and `accuracy`, at the threshold that is
    best for the same pairs.

    Args:
        validation, test: a file of two sentences and a label, files by name, or None.
        reading: see FileEvaluator.
    """

    labels: Mapping[float, float] = {0.0: 0.0, NEUTRAL: 0.0, 1.0: 1.0}

    def measure(self, encode: Encode, data: list[ScoredPair]) -> dict[str, float]:
        from sklearn.metrics import average_precision_score, roc_curve  # slow to import

        labels = np.array([pair.score for pair in data])
        columns = encode_columns(encode, [pair.first for pair in data], [pair.second for pair in data])
        scores = cosine_similarity(*columns).numpy().round(6)
        false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
        accuracies = true * labels.mean() + (1 - false) * (1 - labels.mean())  # of each threshold
        precision = average_precision_score(labels, scores)
        return {"average_precision": float(precision), "accuracy": float(accuracies.max())}


class Ranking(FileEvaluator[Judgements]):
    """Documents that are ranked by their cosine with a query.

    Documents with equal cosines are ranked in the order of the corpus. If only judged documents are ranked, irrelevant
    ones come first, because files often begin with the relevant ones.

    The metrics are the means of `ranking_metric` over queries. Queries have the encoder's prompt `query`, and
    documents `document`, if it has them.

    Args:
        validation, test: a file, files by name, or None.
        metrics: further metrics, such as `map@100`.
        reading: see FileEvaluator.
    """

    usual_metrics: Sequence[str] = ()
    judged_only = False  # whether only the documents that were judged for a query are ranked

    def __init__(
        self, validation: Files = None, test: Files = None, metrics: Sequence[Metric] = (), **reading: Any
    ) -> None:
        self.metrics = list(dict.fromkeys([*self.usual_metrics, *metrics]))
        super().__init__(validation, test, **reading)

    def sentences_of(self, data: Judgements) -> list[str]:
        return [*data.queries.values(), *data.corpus.values()]

    def by_prompt(self, split: str) -> Mapping[str | None, Sequence[str]]:
        files = self.sets[split].values()
        queries = [query for data in files for query in data.queries.values()]
        return {QUERY: queries, DOCUMENT: [document for data in files for document in data.corpus.values()]}

    def measure(self, encode: Encode, data: Judgements) -> dict[str, float]:
        values = [
            [ranking_metric(name, ranks, grades) for name in self.metrics]
            for ranks, grades in relevant_ranks(encode, data, self.judged_only)
        ]
        return dict(zip(self.metrics, np.mean(values, axis=0).tolist(), strict=True))


def relevant_ranks(encode: Encode, data: Judgements, judged_only: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the ranks and the grades of each query's relevant documents, as `ranking_metric` takes them."""
    asked = [data.queries[query] for query, _ in data.qrels]
    (queries,) = encode_columns(partial(encode, prompt_name=QUERY), asked)
    row = {document: i for i, document in enumerate(dict.fromkeys(data.corpus.values()))}
    documents = unit_vectors(encode(list(row), prompt_name=DOCUMENT))
    rows = torch.tensor([row[document] for document in data.corpus.values()])  # equal ones have equal cosines
    index = {document: i for i, document in enumerate(data.corpus)}
    chunks = unit_vectors(queries).split(max(1, _COSINES // len(rows)))
    every = (cosines for vectors in chunks for cosines in (vectors @ documents.T)[:, rows])
    for (query, grades), cosines in zip(data.qrels, every, strict=True):
        # ids may be numbers that mean nothing: a document is the query if its text, after a title, is the same
        same = query in index and f" {data.corpus[query]}".endswith(f" {data.queries[query]}")
        if same and query not in grades:
            cosines[index[query]] = -math.inf
        yield _ranks_of_query(cosines, index, grades, judged_only)


def _ranks_of_query(
    cosines: torch.Tensor, index: Mapping[str, int], grades: Mapping[str, float], judged_only: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `relevant_ranks` yields for a query, given its cosine with each document."""
    relevant = {document: grade for document, grade in grades.items() if grade > 0}
    others = [index[document] for document in grades if document not in relevant] if judged_only else []
    if judged_only:
        judged = torch.tensor([index[document] for document in grades])
        cosines = torch.full_like(cosines, -math.inf).scatter(0, judged, cosines[judged])
    ranks = [_rank(cosines, index[document], others) if document in index else math.inf for document in relevant]
    return np.array(ranks), np.array([*relevant.values()])


def _rank(cosines: torch.Tensor, index: int, others: Sequence[int]) -> int:
    """Return the rank, from 1, of the document at an index; of equal ones, `others` come first, then earlier ones."""
    excess = cosines - cosines[index]
    equal = excess.abs() <= _ROUNDING
    later = [other for other in others if other > index]
    return 1 + int((excess > _ROUNDING).sum() + equal[:index].sum() + equal[later].sum())


def ranking_metric(name: str, ranks: np.ndarray, grades: np.ndarray) -> float:
    """Return a metric of the ranking for one query, in [0, 1].

    The gain of `ndcg` is grade / log2(rank + 1), as in trec_eval. `map@k` divides the sum of precisions by k or by the
    number of relevant documents, whichever is smaller, as sentence-transformers does; trec_eval divides by the latter.

    Args:
        name: `accuracy`, whether a relevant document is found, `map`, `mrr`, `ndcg` or `recall`; and `@k` for the first
            k documents of the ranking only.
        ranks: of the relevant documents, [relevant], from 1; infinity for one that is never found.
        grades: of the same documents, [relevant], above 0.
    """
    kind, _, cut = name.partition("@")
    k = int(cut or sys.maxsize)
    found, ideal = np.sort(ranks[ranks <= k]), np.sort(grades)[::-1][:k]
    if kind == "ndcg":
        gain = (grades[ranks <= k] / np.log2(ranks[ranks <= k] + 1)).sum()
        return float(gain / (ideal / np.log2(np.arange(len(ideal)) + 2)).sum())
    if kind == "map":
        return float((np.arange(1, len(found) + 1) / found).sum() / min(k, len(ranks)))
    if kind == "mrr":
        return float((1 / found[:1]).sum())
    return len(found) / len(ranks) if kind == "recall" else float(len(found) > 0)


class Retrieval(Ranking):
    """Queries and their positives among all positives of a file, and the documents of a corpus if there is one.

    The metrics are `recall@k`, the mean share of a query's positives among its k nearest; `mrr`, the mean reciprocal
    rank of the nearest positive; `ndcg@k` for the largest k; and further `metrics`. A sentence that equals its query is
    neither a positive nor ranked.

    Args:
        validation, test: a file, a folder in BEIR's layout, several of them by name, or None. Each row of a file is a
            query and one or more positives; rows with the same query are joined.
        top_k: the values of k.
        metrics: further metrics, such as `map@100`.
        reading: see RetrievalFile.
    """

    file_class = RetrievalFile

    def __init__(
        self,
        validation: Files = None,
        test: Files = None,
        top_k: Annotated[Sequence[PositiveInt], Field(min_length=1)] = (1, 5, 10),
        metrics: Sequence[Metric] = (),
        **reading: Annotated[Any, RetrievalFile],
    ) -> None:
        self.top_k = sorted(top_k)
        self.usual_metrics = [*(f"recall@{k}" for k in self.top_k), "mrr", f"ndcg@{self.top_k[-1]}"]
        super().__init__(validation, test, metrics, **reading)

    def read(self, file: EvaluationFile) -> Judgements:
        assert isinstance(file, RetrievalFile)
        return file.judgements()

    def name(self, split: str) -> str:
        sets = {name or super(Retrieval, self).name(split): data for name, data in self.sets[split].items()}
        return ", ".join(f"{name} ({len(data.corpus)} candidates)" for name, data in sets.items())


class Reranking(Ranking):
    """Queries, each with candidates of its own: `map`, `mrr@10`, `ndcg@10`.

    A query without a relevant candidate, or without another one, is left out.

    Args:
        validation, test: a file, files by name, or None. Each row is a query, a candidate, and its label or grade; a
            candidate with a grade above 0 is relevant.
        metrics, reading: see Ranking.
    """

    usual_metrics = ("map", "mrr@10", "ndcg@10")
    judged_only = True

    def read(self, file: EvaluationFile) -> Judgements:
        grades: dict[str, dict[str, Any]] = {}
        for (query, document), label in file.pairs(score=True):
            grade: Any = label
            grade_of = grades.setdefault(query, {})
            grade_of[document] = max(grade, grade_of.get(document, grade))  # it may be judged twice
        judged = [(query, grade_of) for query, grade_of in grades.items() if min(grade_of.values()) <= 0]
        return judgements_of_texts(file.file, judged)


class Triplets(Ranking):
    """Anchors, positives and negatives.

    `accuracy@1` is the share of rows whose positive is nearer to the anchor than all negatives.

    Args:
        validation, test: a file, files by name, or None. Each row is an anchor, a positive and one or more negatives.
        metrics, reading: see Ranking.
    """

    usual_metrics = ("accuracy@1",)
    judged_only = True

    def read(self, file: EvaluationFile) -> Judgements:
        judged = []
        for row, _ in file.rows():
            anchor, positive, *negatives = (*row, "")
            others = [negative for negative in negatives if negative not in ("", positive)]
            if not anchor or not positive or not others:
                raise UserError(f"{file.file}: the anchor {anchor!r} needs a positive and a negative")
            judged.append((anchor, {positive: 1.0, **dict.fromkeys(others, 0.0)}))
        return judgements_of_texts(file.file, judged)


class Bitext(FileEvaluator[list[tuple[str, str]]]):
    """Sentences and their translations: each is searched for among all, by cosine, as in Tatoeba and BUCC.

    The metrics are `accuracy`, the share of sentences whose nearest translation is their own or equal to it;
    `reverse_accuracy`, that of translations; and `f1` as MTEB defines it: the mean over rows of the F1 of finding the
    row's translation. If several rows have equal translations, only the first is found; the others have the F1 0.

    Args:
        validation, test: a file of two columns, files by name, or None.
        reading: see FileEvaluator.
    """

    def read(self, file: EvaluationFile) -> list[tuple[str, str]]:
        return [(first, second) for (first, second), _ in file.pairs()]

    def sentences_of(self, data: list[tuple[str, str]]) -> list[str]:
        return [sentence for pair in data for sentence in pair]

    def measure(self, encode: Encode, data: list[tuple[str, str]]) -> dict[str, float]:
        from sklearn.metrics import f1_score  # slow to import

        first, second = (unit_vectors(x) for x in encode_columns(encode, *zip(*data, strict=True)))
        texts, nearest = np.array(data, dtype=object), _nearest(first, second)
        return {
            "accuracy": float(np.mean(texts[nearest, 1] == texts[:, 1])),
            "reverse_accuracy": float(np.mean(texts[_nearest(second, first), 0] == texts[:, 0])),
            "f1": float(f1_score(range(len(data)), nearest, average="weighted", zero_division=0)),
        }


def _nearest(queries: torch.Tensor, corpus: torch.Tensor) -> np.ndarray:
    """Return the row of the unit vector that is nearest to each query's."""
    return torch.cat([(rows @ corpus.T).argmax(dim=1) for rows in queries.split(4096)]).numpy()
