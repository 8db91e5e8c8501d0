"""Encoding: texts per second of `encode` of sentence-transformers and of simcse_pl.

    python -m benchmarks.encode
    python -m benchmarks.encode --per-text 8 --max-length 256     texts of 8 sentences, about 200 tokens

The packaged encoder (6 layers) on sentences of the packaged Wikipedia sample, each library with its defaults.
"""

import logging
from functools import partial
from statistics import fmean

import torch
import torch.nn.functional as F

from benchmarks.common import (
    PACKAGED,
    comparison,
    in_turn,
    parser,
    save,
    timed,
    wikipedia_sentences,
)
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.sources import resolve
from simcse_pl.models.tokenization import tokenize


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__)
    command_line.add_argument("--sentences", type=int, default=1024)
    command_line.add_argument("--per-text", type=int, default=1, help="sentences joined to a text (%(default)s)")
    command_line.add_argument("--max-length", type=int, default=128, help="tokens read per sentence")
    arguments = command_line.parse_args()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(resolve(PACKAGED), device="cpu")
    theirs.max_seq_length = arguments.max_length
    ours = SentenceEncoder.from_pretrained(PACKAGED, max_length=arguments.max_length)
    sentences, count = wikipedia_sentences(arguments.sentences), arguments.sentences // arguments.per_text
    texts = [" ".join(sentences[start::count]) for start in range(count)]
    ways = {
        "sentence-transformers": partial(theirs.encode, texts),
        "simcse_pl, float32": partial(ours.encode, texts),
        "simcse_pl, bf16": partial(ours.encode, texts, bf16=True),
    }
    seconds = in_turn({name: partial(timed, way) for name, way in ways.items()}, arguments.rounds)
    vectors = torch.from_numpy(theirs.encode(texts))
    worst = [F.cosine_similarity(vectors, ours.encode(texts, bf16=bf16)).min().item() for bf16 in (False, True)]
    lengths = [len(ids) for ids in tokenize(ours.tokenizer, texts, arguments.max_length)]
    note = (
        f"{len(texts)} texts of {fmean(lengths):.0f} tokens in the mean, at most {arguments.max_length}; "
        f"lowest cosine with the first way {worst[0]:.6f} in float32, {worst[1]:.6f} in bf16"
    )
    name, title = ("encode", "Encoding") if arguments.per_text == 1 else ("encode_long", "Encoding long texts")
    save(arguments.out, comparison(name, title, "texts/s", seconds, len(texts), notes=[note]))


if __name__ == "__main__":
    main()
