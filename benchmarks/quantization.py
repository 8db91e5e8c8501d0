"""Recall of quantized vectors: how many of the 10 nearest sentences in float32 a search finds, by precision.

    python -m benchmarks.quantization

The vectors are those of the packaged encoder for the distinct sentences of the packaged Wikipedia sample, also cut to
their first dimensions. At most 1,000 of the sentences are the queries; the entry of a query itself is left out. The 10
nearest sentences are those of float32 with all dimensions.
"""

import math
from statistics import fmean

import pandas as pd

from benchmarks.common import PACKAGED, parser, wikipedia_sentences
from simcse_pl.inference.sentence_index import PRECISIONS, SentenceIndex
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.evaluation_report import save
from simcse_pl.utils.tables import Table
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.terminal import show

_MEMORY = "MB per million vectors"
_RECALL = "recall@10"


def recall(index: SentenceIndex, exact: SentenceIndex, dim: int, top_k: int = 10, most: int = 1000) -> float:
    """Return the fraction of the nearest sentences in an exact index of all dimensions that an index finds, too."""
    places = range(0, len(exact), math.ceil(len(exact) / most))
    vectors = exact.vectors[:: places.step]
    found, expected = index.nearest(unit_vectors(vectors[:, :dim]), top_k + 1), exact.nearest(vectors, top_k + 1)
    shares = []
    for query, *both in zip(places, found, expected, strict=True):
        near, nearest = ({*[place for place, _ in row if place != query][:top_k]} for row in both)
        shares.append(len(near & nearest) / top_k)
    return fmean(shares)


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__, rounds=False)
    command_line.add_argument("--sentences", type=int, help="a random sample of them (default: all)")
    command_line.add_argument("--dims", type=int, nargs="+", default=[384, 192, 96])
    given = command_line.parse_args()
    sentences = wikipedia_sentences(given.sentences)
    encoder = SentenceEncoder.from_pretrained(PACKAGED, normalize=True)
    exact = SentenceIndex(encoder.encode, sentences, encoder.encode(sentences, progress=True))
    rows = []
    for dim in given.dims:
        cut = SentenceIndex(encoder.encode, sentences, unit_vectors(exact.vectors[:, :dim]))
        for precision in PRECISIONS:
            index = cut.quantized(precision)
            numbers = {_MEMORY: index.vectors[0].nbytes, _RECALL: recall(index, exact, dim)}  # bytes per vector
            rows.append({"dimensions": str(dim), "precision": precision, **numbers})
    decimals = {_MEMORY: 0, _RECALL: 3}
    title = "Recall@10 against float32 with all dimensions"
    made = Table("quantization", title, pd.DataFrame(rows), decimals, [f"{len(sentences)} sentences"])
    show(made.printed())
    save(given.out, [made], {})


if __name__ == "__main__":
    main()
