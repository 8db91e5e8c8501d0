"""Train a tokenizer of a model's kind on text, for a model with random weights."""

import argparse

from simcse_pl.data.rows import ReadOptions, iterate_rows
from simcse_pl.models.sources import load_config, load_tokenizer, resolve
from simcse_pl.models.tokenization import save_tokenizer
from simcse_pl.tools.common import new_folder
from simcse_pl.utils.files import atomic_write
from simcse_pl.utils.terminal import hydra_option, integer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="gives the architecture: a folder, a hub name or package:NAME")
    parser.add_argument("text", metavar="TEXT", help="file of sentences; all its columns are read")
    parser.add_argument("out", metavar="OUT", help="folder for the tokenizer and the config; it must not contain files")
    text = "largest size of the vocabulary (default: %(default)s)"
    parser.add_argument("--vocabulary", type=integer, default=30_000, metavar="N", help=text)


def run(arguments: argparse.Namespace) -> None:
    out = new_folder(arguments.out)
    old, config = load_tokenizer(arguments.model), load_config(resolve(arguments.model))
    sentences = (sentence for row, _ in iterate_rows(arguments.text, ReadOptions()) for sentence in row)
    new = old.train_new_from_iterator(sentences, arguments.vocabulary)
    config.vocab_size = len(new)
    for name in ("pad", "bos", "eos", "cls", "sep"):
        if getattr(config, f"{name}_token_id", None) is not None:
            setattr(config, f"{name}_token_id", getattr(new, f"{name}_token_id"))
    with atomic_write(out, last="config.json") as folder:
        save_tokenizer(new, folder)
        config.save_pretrained(folder)
    options = f"model=checkpoint {hydra_option('model.name', out)} model.pretrained=false"
    print(f"{len(new)} tokens in {out}; {options} uses them")
