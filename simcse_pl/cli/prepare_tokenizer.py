"""Train a tokenizer on text, for a model with random weights."""

import argparse

from simcse_pl.data.prepare.tokenizer import train_tokenizer
from simcse_pl.utils.command_line import hydra_option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="model to take the architecture from: a folder, a hub name or package:NAME"
    )
    parser.add_argument("text", metavar="TEXT", help="file of sentences; all its columns are read")
    parser.add_argument("out", metavar="OUT", help="output folder, for the tokenizer and the config of the model")
    about = "largest size of the vocabulary (default: %(default)s)"
    parser.add_argument("--vocabulary", type=int, default=30_000, metavar="N", help=about)


def run(arguments: argparse.Namespace) -> None:
    tokens = train_tokenizer(arguments.model, arguments.text, arguments.out, arguments.vocabulary)
    how = f"model=checkpoint {hydra_option('model.name', arguments.out)} model.pretrained=false"
    print(f"{tokens} tokens in {arguments.out}; {how} uses them")
