"""Encoding: sentences a second of sentence-transformers' `encode` and of ours.

    python -m benchmarks.encode

The packaged encoder with its 6 layers on sentences of the packaged Wikipedia sample, each at its own defaults.
"""

import logging
import random
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.comparison import (
    PACKAGED,
    Way,
    comparison,
    in_turn,
    matrix_rates,
    operations_of,
    parser_of_rounds,
    save,
    timed,
)
from simcse_pl.data.prepare.wikipedia import gensim_sample
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.models.backbone import resolve
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import tokenize


def main() -> None:
    """The command line."""
    command_line = parser_of_rounds(__doc__)
    command_line.add_argument("--sentences", type=int, default=1024)
    command_line.add_argument("--max-length", type=int, default=128, help="tokens read of a sentence")
    arguments = command_line.parse_args()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(resolve(PACKAGED), device="cpu")
    theirs.max_seq_length = arguments.max_length
    ours = SentenceEncoder.from_pretrained(PACKAGED, max_length=arguments.max_length)
    sentences = [row[0] for row in random.Random(42).sample(read_rows(gensim_sample()), arguments.sentences)]
    vectors = torch.from_numpy(theirs.encode(sentences))
    seconds = in_turn(
        [
            Way("sentence-transformers", partial(timed, partial(theirs.encode, sentences))),
            Way("simcse_pl, float32", partial(timed, partial(ours.encode, sentences))),
            Way("simcse_pl, bf16", partial(timed, partial(ours.encode, sentences, bf16=True))),
        ],
        arguments.rounds,
    )
    lengths = [len(ids) for ids in tokenize(ours.tokenizer, sentences, arguments.max_length)]
    config = ours.backbone.config
    rates = matrix_rates(config)
    worst = [F.cosine_similarity(vectors, ours.encode(sentences, bf16=bf16)).min().item() for bf16 in (False, True)]
    notes = [
        f"{len(sentences)} sentences, up to {arguments.max_length} tokens; "
        f"lowest cosine with sentence-transformers' vectors {worst[0]:.6f} in float32, {worst[1]:.6f} in bf16",
        f"matrix products alone: {rates['float32']:.0f} GFLOP/s in float32, {rates['bf16']:.0f} in bf16",
    ]
    operations = operations_of(config, lengths)
    save(arguments.out, comparison("encode", "Encoding", "sentences/s", seconds, len(sentences), operations, notes))


if __name__ == "__main__":
    main()
