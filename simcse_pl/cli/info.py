"""Print the architecture, the settings and the size of an encoder."""

import argparse
from dataclasses import asdict
from typing import Any

from simcse_pl.cli.common import add_encoder, json_line, load_simcse
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.models.adapters import has_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.word_vectors import WordVectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser)
    parser.add_argument("--json", action="store_true", help="print a line of JSON")


def run(arguments: argparse.Namespace) -> None:
    properties = describe(load_simcse(arguments))
    if arguments.json:
        print(json_line(properties), end="")
        return
    for name, value in properties.items():
        print(f"{name:15} {f'{value:,}' if type(value) is int else value}")


def describe(simcse: SimCSE) -> dict[str, Any]:
    """Return an encoder's name, architecture, settings and size."""
    encoder = simcse.encoder
    if not isinstance(encoder, SentenceEncoder):
        kind = "word vectors" if isinstance(encoder, WordVectors) else "static embeddings"
        return {"encoder": simcse.name, "architecture": kind, "dimensions": encoder.dim}
    config = encoder.backbone.config
    return {
        "encoder": simcse.name,
        "architecture": type(encoder.backbone).__name__,
        **({"adapter_of": encoder.backbone.name_or_path} if has_adapter(encoder.backbone) else {}),
        **asdict(encoder.settings),
        "postprocess": encoder.postprocess.name if encoder.postprocess else None,
        "layers": config.num_hidden_layers,
        "dimensions": encoder.dim,
        "vocabulary": config.vocab_size,
        "parameters": sum(p.numel() for p in encoder.parameters()),
    }
