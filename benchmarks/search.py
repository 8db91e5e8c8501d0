"""Search of vectors in memory: sentence-transformers, FAISS and SentenceIndex.

    python -m benchmarks.search

The vectors are those of the packaged encoder for sentences of the packaged Wikipedia sample; some of the sentences are
the queries. Encoding, which takes most of the time of a search, is not included: see `python -m benchmarks.encode`.
"""

from collections.abc import Callable
from functools import partial

import faiss
import torch
from sentence_transformers.util import semantic_search
from torch import Tensor

from benchmarks.common import PACKAGED, parser, wikipedia_sentences
from benchmarks.comparison import comparison, in_turn, save, timed
from simcse_pl.inference.sentence_index import SentenceIndex
from simcse_pl.models.encoder import SentenceEncoder

_TOP = 10


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__)
    command_line.add_argument("--sentences", type=int, default=10_000)
    command_line.add_argument("--queries", type=int, default=1000)
    arguments = command_line.parse_args()
    sentences = wikipedia_sentences(arguments.sentences)
    queries = sentences[: arguments.queries]
    encoder = SentenceEncoder.from_pretrained(PACKAGED, max_length=32, normalize=True)
    vectors = encoder.encode(sentences, progress=True)
    table = dict(zip(sentences, vectors, strict=True))

    def encode(texts: list[str]) -> Tensor:
        return torch.stack([table[text] for text in texts])

    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors.numpy())
    exact = SentenceIndex(encode, sentences, vectors)
    searches: dict[str, Callable[[list[str]], object]] = {
        "sentence-transformers": lambda texts: semantic_search(encode(texts), vectors, top_k=_TOP),
        "FAISS IndexFlatIP": lambda texts: flat.search(encode(texts).numpy(), _TOP),
        "simcse_pl": partial(exact.search, top_k=_TOP),
    }

    def seconds(batch_size: int) -> dict[str, list[float]]:
        parts = [queries[start : start + batch_size] for start in range(0, len(queries), batch_size)]
        ways = {name: lambda search=search: [search(part) for part in parts] for name, search in searches.items()}
        return in_turn({name: partial(timed, way) for name, way in ways.items()}, arguments.rounds)

    note = f"{len(sentences)} sentences, {vectors.shape[1]} dimensions, top {_TOP}"
    n, one, many = len(queries), "Searching, one query at a time", f"Searching, {len(queries)} queries at once"
    save(
        arguments.out,
        comparison("search_one", one, "queries/s", seconds(1), n, notes=[note]),
        comparison("search", many, "queries/s", seconds(n), n),
    )


if __name__ == "__main__":
    main()
