"""A custom evaluator: how often the second sentence of a pair is the nearest neighbour of the first."""

from simcse_pl.evaluation.evaluators import EvaluationFile, FileEvaluator
from simcse_pl.utils.tensors import Encode, encode_columns, unit_vectors


class NearestPartner(FileEvaluator[list[tuple[str, str]]]):
    """The share of pairs whose second sentence is the nearest to the first one, among all second sentences."""

    def read(self, file: EvaluationFile) -> list[tuple[str, str]]:
        """Read the first two columns."""
        return [(first, second) for (first, second), _ in file.pairs()]

    def sentences_of(self, data: list[tuple[str, str]]) -> list[str]:
        """Return the sentences of all pairs."""
        return [sentence for pair in data for sentence in pair]

    def measure(self, encode: Encode, data: list[tuple[str, str]]) -> dict[str, float]:
        """Return the metric `nearest_partner`."""
        first, second = (unit_vectors(x) for x in encode_columns(encode, *map(list, zip(*data, strict=True))))
        nearest = (first @ second.T).argmax(dim=1)
        return {"nearest_partner": sum(data[i][1] == data[int(j)][1] for i, j in enumerate(nearest)) / len(data)}
