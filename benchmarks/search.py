"""Searching vectors in memory: sentence-transformers, FAISS, and a SentenceIndex with and without FAISS's cells.

    python -m benchmarks.search

Sentences of the packaged Wikipedia sample and their vectors by the packaged encoder; queries are some of the sentences.
Encoding, which takes most of the time of a search, is left out: `python -m benchmarks.encode` measures it.
"""

import random
from collections.abc import Callable
from functools import partial

import faiss
import torch
from sentence_transformers.util import semantic_search
from torch import Tensor

from benchmarks.comparison import PACKAGED, Way, comparison, in_turn, parser_of_rounds, save, timed
from simcse_pl.data.prepare.wikipedia import gensim_sample
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.inference.sentence_index import SentenceIndex
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.results.neighbourhood import Neighbour

_TOP = 10
_CELLS = (100, 10)  # the defaults of SimCSE


def share_of_same(found: list[list[Neighbour]], expected: list[list[Neighbour]]) -> float:
    """Return the share of the expected neighbours that were found."""
    pairs = [({one.sentence for one in a}, {one.sentence for one in b}) for a, b in zip(found, expected, strict=True)]
    return sum(len(own & right) for own, right in pairs) / sum(len(right) for _, right in pairs)


def main() -> None:
    """Run the command line."""
    command_line = parser_of_rounds(__doc__)
    command_line.add_argument("--sentences", type=int, default=10_000)
    command_line.add_argument("--queries", type=int, default=1000)
    arguments = command_line.parse_args()
    rows = dict.fromkeys(row[0] for row in read_rows(gensim_sample()))
    sentences = random.Random(42).sample(list(rows), arguments.sentences)
    queries = sentences[: arguments.queries]
    encoder = SentenceEncoder.from_pretrained(PACKAGED, max_length=32, normalize=True)
    vectors = encoder.encode(sentences, progress=True)
    table = dict(zip(sentences, vectors, strict=True))

    def encode(texts: list[str]) -> Tensor:
        return torch.stack([table[text] for text in texts])

    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors.numpy())
    exact = SentenceIndex(encode, sentences, vectors)
    cells = SentenceIndex(encode, sentences, vectors, _CELLS)
    searches: dict[str, Callable[[list[str]], object]] = {
        "sentence-transformers": lambda texts: semantic_search(encode(texts), vectors, top_k=_TOP),
        "FAISS IndexFlatIP": lambda texts: flat.search(encode(texts).numpy(), _TOP),
        "simcse_pl": partial(exact.search, top_k=_TOP),
        "simcse_pl, faiss_fast": partial(cells.search, top_k=_TOP),
    }

    def seconds(texts_of_a_search: int) -> dict[str, list[float]]:
        parts = [queries[start : start + texts_of_a_search] for start in range(0, len(queries), texts_of_a_search)]
        every = {name: lambda search=search: [search(part) for part in parts] for name, search in searches.items()}
        return in_turn([Way(name, partial(timed, work)) for name, work in every.items()], arguments.rounds)

    same = share_of_same(cells.search(queries, _TOP), exact.search(queries, _TOP))
    notes = [
        f"{len(sentences)} sentences, {vectors.shape[1]} dimensions, the {_TOP} nearest; faiss_fast finds {same:.2%}"
    ]
    many = f"Searching, {len(queries)} queries at once"
    save(
        arguments.out,
        comparison("search_one", "Searching, a query at a time", "queries/s", seconds(1), len(queries), notes=notes),
        comparison("search", many, "queries/s", seconds(len(queries)), len(queries)),
    )


if __name__ == "__main__":
    main()
