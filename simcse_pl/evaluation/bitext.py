"""An evaluator of translations."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from simcse_pl.data.evaluation import encode_columns
from simcse_pl.data.readers.evaluation_files import EvaluationFile, read_cells
from simcse_pl.evaluation.evaluators import FileEvaluator
from simcse_pl.utils.tensors import Encode, unit_vectors

_QUERIES_AT_ONCE = 4096


class Bitext(FileEvaluator[list[tuple[str, str]]]):
    """Sentences and their translations: each is searched for among all, by cosine, as in Tatoeba and BUCC.

    The metrics are `accuracy`, the share of sentences whose nearest translation is their own or equal to it;
    `reverse_accuracy`, that of translations; and `f1` as MTEB defines it: for each translation, the F1 of the sentences
    that are nearest to it, and the mean of these, weighted by the number of its sentences.

    Args:
        validation, test: a file of two columns, files by name, or None.
        reading: see FileEvaluator.

    Raises:
        UserError: a file cannot be read.
    """

    def read(self, file: EvaluationFile) -> list[tuple[str, str]]:
        """Read a sentence and its translation from each row."""
        return [(cells[0], cells[1]) for _, cells in read_cells(file, 2, self.split)]

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


def _nearest(queries: Tensor, corpus: Tensor, texts: Sequence[str]) -> list[str]:
    """Return the text whose unit vector is nearest to each query's."""
    places = torch.cat([(rows @ corpus.T).argmax(dim=1) for rows in queries.split(_QUERIES_AT_ONCE)])
    return [texts[place] for place in places.tolist()]
