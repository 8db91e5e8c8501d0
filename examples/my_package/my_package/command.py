"""Print the mean squared cosine of the sentences in a file."""

import argparse
from pathlib import Path

from simcse_pl import SimCSE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `simcse spread`."""
    parser.add_argument("encoder")
    parser.add_argument("sentences", type=Path)


def run(arguments: argparse.Namespace) -> None:
    """Run `simcse spread`."""
    vectors = SimCSE(arguments.encoder).encode(arguments.sentences.read_text().splitlines())
    print(f"{(vectors @ vectors.T).square().mean():.4f}")
