"""Recall of quantized vectors: how many of the 10 nearest sentences in float32 a search finds, by precision.

    python -m benchmarks.quantization

The vectors are those of the packaged encoder for the distinct sentences of the packaged Wikipedia sample, also cut to
their first dimensions. At most 1,000 of the sentences are the queries; the entry of a query itself is left out. The 10
nearest sentences are those of float32 with all dimensions.
"""

import pandas as pd

from benchmarks.common import PACKAGED, parser, wikipedia_sentences
from simcse_pl.inference.sentence_index import PRECISIONS, SentenceIndex, recall
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.reports.evaluation_report import save
from simcse_pl.utils.tables import Table
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.terminal import show

_MEMORY = "MB per million vectors"
_RECALL = "recall@10"


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
            memory = index.vectors[0].nbytes  # in bytes per vector
            rows.append({"dimensions": str(dim), "precision": precision, _MEMORY: memory, _RECALL: recall(index, exact)})
    decimals = {_MEMORY: 0, _RECALL: 3}
    title = "Recall@10 against float32 with all dimensions"
    made = Table("quantization", title, pd.DataFrame(rows), decimals, [f"{len(sentences)} sentences"])
    show(made.printed())
    save(given.out, [made], {})


if __name__ == "__main__":
    main()
