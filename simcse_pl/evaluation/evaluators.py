"""Evaluators of files: measurements on validation and test data, during training and by `simcse evaluate`."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from pydantic import PositiveInt

from simcse_pl.data.evaluator import TEST, VALIDATION, Evaluator, encode_columns
from simcse_pl.data.readers.evaluation_files import EvaluationFile
from simcse_pl.data.readers.labels import NEUTRAL
from simcse_pl.data.senteval.sts_sets import SPLITS, STSB_SOURCES, ScoredPair, StsTask, load_stsb
from simcse_pl.evaluation.metrics import alignment, correlations, uniformity
from simcse_pl.utils.errors import UserError, prefixed, reraise_invalid_options
from simcse_pl.utils.tensors import DOCUMENT, QUERY, Encode, cosine_similarity, unit_vectors, with_prompt

POSITIVE_SCORE = 0.8  # pairs with a score above this share of the highest are positives: 4 of 5 in the paper

Data = TypeVar("Data")
Files = str | Sequence[str] | Mapping[str, str | Mapping[str, Any]] | None


class FileEvaluator(Evaluator, Generic[Data]):
    """An evaluator whose splits are one file each, or several files with names.

    The metrics of a file with a name are NAME/METRIC, and METRIC is their mean.

    Args:
        validation, test: a file, files by name, or None. A file can be a mapping with the arguments of EvaluationFile,
            which replace those in `reading`.
        reading: arguments of EvaluationFile for all files, such as `columns`.

    Attributes:
        sets: the data of each split, by the names of the files; a file without a name has the name ''.
    """

    def __init__(self, validation: Files = None, test: Files = None, **reading: Any) -> None:
        self.files = {VALIDATION: validation, TEST: test}
        self.sets: dict[str, dict[str, Data]] = {VALIDATION: {}, TEST: {}}
        for split, files in self.files.items():
            with_names = isinstance(files, Mapping) and "file" not in files
            named: Any = files if with_names else {"": files} if files else {}
            for name, file in named.items():
                with prefixed(f"data.{split}"), reraise_invalid_options():
                    options = file if isinstance(file, Mapping) else {"file": str(file)}
                    self.sets[split][str(name)] = self.read(EvaluationFile(**{"split": split, **reading, **options}))

    @abstractmethod
    def read(self, file: EvaluationFile) -> Data:
        """Read a file."""

    @abstractmethod
    def sentences_of(self, data: Data) -> Sequence[str]:
        """Return the sentences of a file."""

    @abstractmethod
    def measure(self, encode: Encode, data: Data) -> dict[str, float]:
        """Return the metrics of a file."""

    def name(self, split: str) -> str:
        """Return the names of the files."""
        files = self.files[split] or ()
        if isinstance(files, Mapping):
            files = files.get("file", files)
        return Path(files).name if isinstance(files, str) else ", ".join(map(str, files))

    def sentences(self, split: str) -> list[str]:
        """Return the sentences of all files of a split."""
        return [sentence for data in self.sets[split].values() for sentence in self.sentences_of(data)]

    def __call__(self, encode: Encode, split: str) -> dict[str, float]:
        """Return the metrics of each file of a split, and their means."""
        measured = {name: self.measure(encode, data) for name, data in self.sets[split].items()}
        if list(measured) == [""]:
            return measured[""]
        metrics = {f"{name}/{metric}": value for name, values in measured.items() for metric, value in values.items()}
        for metric in next(iter(measured.values()), {}):
            metrics[metric] = float(np.mean([values[metric] for values in measured.values()]))
        return metrics


class LabelledPairs(FileEvaluator[list[ScoredPair]]):
    """Pairs of sentences with a number, or a word for it."""

    labels: Mapping[float, float] = {}  # what the numbers of a file become, if only these are possible

    def read(self, file: EvaluationFile) -> list[ScoredPair]:
        """Read two sentences and a score from each row."""
        pairs = []
        for (first, second), text in file.pairs(score=True):
            score = float(str(text))
            if self.labels and score not in self.labels:
                raise UserError(f"{file.file}: it has the label {score:g}, and labels should be 0 or 1")
            pairs.append(ScoredPair(first, second, self.labels.get(score, score)))
        if len({pair.score for pair in pairs}) < 2:
            raise UserError(f"{file.file}: all rows have the number {pairs[0].score:g}; different ones are needed")
        return pairs

    def sentences_of(self, data: list[ScoredPair]) -> list[str]:
        """Return the sentences of the pairs."""
        return [sentence for pair in data for sentence in (pair.first, pair.second)]


class ScoredPairs(LabelledPairs):
    """Pairs of sentences with a similarity score: STS-B, or files of two sentences and a score.

    The metrics are `spearman`, the correlation of cosines with the scores, and the `alignment` and `uniformity` of
    section 2 of the paper. Positives of the alignment have more than 80 % of the file's highest score, as in the paper.
    If no score is above 0, there are none, and the alignment is NaN.

    Args:
        validation: a file, files by name, or sources of STS-B, whose dev split is the validation set (see
            sts_sets.load_stsb), as a list or as text such as `senteval, hub`: Hydra cannot replace a list by files
            with names.
        test: a file or files by name. None: STS-B's test split if `validation` is STS-B, otherwise no test set.
        senteval_dir: a SentEval bundle, for STS-B.
        reading: see FileEvaluator.

    Attributes:
        stsb: the splits of STS-B that are used, `dev` and `test`; empty if other files are used.

    Raises:
        UserError: a file or STS-B cannot be read, a score is neither a number nor a word that is known, or all scores
            of a file are equal.
    """

    def __init__(
        self, validation: Files = None, test: Files = None, senteval_dir: str | Path | None = None, **reading: Any
    ) -> None:
        self.stsb: dict[str, StsTask] = {}
        sources = [name.strip() for name in validation.split(",")] if isinstance(validation, str) else validation
        if isinstance(sources, Sequence) and set(sources) <= set(STSB_SOURCES):
            self.stsb = load_stsb(sources, senteval_dir, SPLITS if test is None else SPLITS[:1])
            validation = None
        super().__init__(validation, test, **reading)
        splits = zip((VALIDATION, TEST), self.stsb.values(), strict=False)
        self.sets |= {split: {"": task.pairs} for split, task in splits}

    def name(self, split: str) -> str:
        """Return the names of the files, or of the source of STS-B."""
        return self.stsb["dev"].name if self.files[split] is None and self.stsb else super().name(split)

    def measure(self, encode: Encode, data: list[ScoredPair]) -> dict[str, float]:
        """Return Spearman's correlation, alignment and uniformity."""
        first, second = encode_columns(encode, [pair.first for pair in data], [pair.second for pair in data])
        scores = np.array([pair.score for pair in data])
        positive = torch.from_numpy(scores > POSITIVE_SCORE * scores.max())
        return {
            "spearman": correlations(cosine_similarity(first, second).numpy(), scores)[0],
            "alignment": float(alignment(first[positive], second[positive])),
            "uniformity": float(uniformity(torch.cat([first, second]))),
        }


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
