"""Training: rows per second of the sentence-transformers trainer, plain loops, and simcse_pl.

    python -m benchmarks.train                            sentences of the packaged Wikipedia sample
    python -m benchmarks.train --triplets triplets.csv    rows of an anchor, its positive and a hard negative

All use the packaged encoder (6 layers, mean pooling, dropout), the same rows, length, AdamW and temperature. The first
step of each run is not counted. `views apart` encodes each view separately, padded to its own longest sentence; `one
pass` pads all views to the longest sentence of the batch.
"""

import logging
import math
import random
from functools import partial
from pathlib import Path

from benchmarks.common import PACKAGED, matrix_rates, operations_of, parser, wikipedia_sentences
from benchmarks.comparison import comparison, in_turn, save
from benchmarks.train_baselines import plain_loop, sentence_transformers_trainer
from benchmarks.train_simcse_pl import simcse_pl
from simcse_pl.cpu import Speed
from simcse_pl.data.readers.row_reader import read_rows
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import tokenize
from simcse_pl.training.trainer import has_bf16


def main() -> None:
    """Run the command line."""
    command_line = parser(__doc__)
    command_line.add_argument("--triplets", type=Path, help="file of triplets (`simcse prepare nli` writes one)")
    command_line.add_argument("--batch-size", type=int, default=64)
    command_line.add_argument("--max-length", type=int, default=32, help="tokens read per sentence")
    command_line.add_argument("--steps", type=int, default=5, help="timed steps per round")
    arguments = command_line.parse_args()

    for name in ("pytorch_lightning", "lightning.pytorch", "sentence_transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if arguments.triplets:
        rows = read_rows(arguments.triplets, [0, 1, 2])
        random.Random(42).shuffle(rows)
    else:
        rows = [(sentence,) for sentence in wikipedia_sentences((arguments.steps + 1) * arguments.batch_size)]
    steps = min(arguments.steps, len(rows) // arguments.batch_size - 1)
    if steps < 1:
        raise SystemExit(f"error: {len(rows)} rows are fewer than two batches of {arguments.batch_size}")
    rows = rows[: (steps + 1) * arguments.batch_size]
    encoder = SentenceEncoder.from_pretrained(PACKAGED, pooling="mean")
    plain = partial(plain_loop, rows, arguments, encoder)
    ours = partial(simcse_pl, rows, arguments, encoder)
    ways = {
        "sentence-transformers trainer": partial(sentence_transformers_trainer, rows, arguments),
        "plain loop, views apart": partial(plain, apart=True),
        "plain loop, one pass": partial(plain, apart=False),
        "simcse_pl, float32": partial(ours, precision="32-true"),
        "simcse_pl, padded": partial(ours, speed=Speed(tokens_per_pass=math.inf)),
        "simcse_pl, torch's dropout": partial(ours, speed=Speed(fast_dropout=False)),
        "simcse_pl": ours,
    }
    seconds = in_turn(ways, arguments.rounds, warm_up=False)
    kind, views = ("triplets", 3) if arguments.triplets else ("sentences", 2)
    config = encoder.backbone.config
    lengths = [len(ids) for row in rows for ids in tokenize(encoder.tokenizer, list(row), arguments.max_length)]
    timed_passes = steps / (steps + 1) * views / len(rows[0])
    operations = 3 * timed_passes * operations_of(config, lengths)  # backward is twice forward
    notes = [
        f"{steps} steps of {arguments.batch_size} rows of {views} views, up to {arguments.max_length} tokens; "
        f"simcse_pl: {'bf16' if has_bf16('cpu') else 'float32'} unless the row names another precision",
        matrix_rates(config),
    ]
    amount = steps * arguments.batch_size
    table = comparison(f"train_{kind}", f"Training on {kind}", "rows/s", seconds, amount, operations, notes)
    save(arguments.out, table)


if __name__ == "__main__":
    main()
