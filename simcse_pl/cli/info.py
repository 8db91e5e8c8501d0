"""Say what an encoder is: its architecture, pooling and size."""

import argparse
from typing import Any

import pandas as pd

from simcse_pl.cli.common import add_encoder, encoder_of, json_line
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.protocols import Encoder
from simcse_pl.utils.tables import Table, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser)
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    about = {"encoder": arguments.encoder} | describe(encoder_of(arguments).encoder)
    if arguments.json:
        print(json_line(about), end="")
        return
    rows = [
        (name.replace("_", " "), f"{value:,}" if type(value) is int else str(value)) for name, value in about.items()
    ]
    show(Table("info", "", pd.DataFrame(rows[1:], columns=rows[0])).printed())


def describe(encoder: Encoder) -> dict[str, Any]:
    """What a user may want to know of an encoder, by name."""
    if not isinstance(encoder, SentenceEncoder):
        return {"architecture": "word vectors", "dimensions": encoder.dim}
    config = encoder.backbone.config
    return {
        "architecture": type(encoder.backbone).__name__,
        "pooling": encoder.pooling,
        "head": encoder.head,
        "postprocess": encoder.postprocess.name if encoder.postprocess else "none",
        "normalize": encoder.normalize,
        "layers": config.num_hidden_layers,
        "dimensions": encoder.dim,
        "max_length": encoder.max_length,
        "vocabulary": config.vocab_size,
        "parameters": sum(p.numel() for p in encoder.parameters()),
    }
