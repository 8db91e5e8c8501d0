"""The share of rows that views of words change, and of words that four kinds of tokenizer let mask whole, in percent.

    python -m benchmarks.words Chinese=LCQMC_dev.txt German=stsb-de-dev.csv French=stsb-fr-dev.csv

Of a file, 1,000 rows of two sentences are read. words.yaml has sentences of the other languages.
"""

import argparse
import random
from itertools import accumulate, pairwise
from pathlib import Path

import pandas as pd
import yaml
from icu4py.breakers import WordBreaker

from simcse_pl.data.rows import read_rows
from simcse_pl.data.view import ViewInput, spaces
from simcse_pl.data.words import icu, jieba, tokenize_words
from simcse_pl.methods.augmentations import Crop, DeleteOneWord, WordDeletion
from simcse_pl.methods.esimcse import WordRepetition
from simcse_pl.models.masked_lm import begins_word
from simcse_pl.models.tokenization import INSIDE_WORD
from tests.support.tiny_models import train_tokenizers


def changed(view, split, rows):
    """Return which rows a view changes."""
    inputs = [ViewInput(" ".join(row.split()), (), random.Random(i), ()) for i, row in enumerate(rows)]
    return [own.sentence != made for own, made in zip(inputs, view(segment=split)(inputs), strict=True)]


def masked_whole(tokenizer, by_icu, rows):
    """Return for each of ICU's words whether its tokens, and no others, are between two that begin a word."""
    of_vocabulary, whole = begins_word(tokenizer), []
    for row, marked in zip(rows, tokenize_words(tokenizer, rows, 10**6, icu), strict=True):
        begins = [number < INSIDE_WORD if by_icu else bool(of_vocabulary[number % INSIDE_WORD]) for number in marked]
        starts = [0, *(place for place, begin in enumerate(begins) if begin and place), len(begins)]
        spans = tokenizer(row, return_offsets_mapping=True)["offset_mapping"]
        units = [(spans[first][0], spans[last - 1][1]) for first, last in pairwise(starts)]
        units = {(end - len(row[start:end].lstrip()), end) for start, end in units}
        words = pairwise([0, *accumulate(len(str(piece)) for piece in WordBreaker(row, "root"))])
        whole += [(start, end) in units for start, end in words if any(map(str.isalnum, row[start:end]))]
    return whole


if __name__ == "__main__":
    command_line = argparse.ArgumentParser(description=__doc__)
    command_line.add_argument("files", nargs="*", metavar="LANGUAGE=FILE")
    texts = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    for language, _, file in (given.partition("=") for given in command_line.parse_args().files):
        texts[language] = [sentence for row in read_rows(file, [0, 1])[:1000] for sentence in row]
    kinds, languages = train_tokenizers([row for rows in texts.values() for row in rows], 12_000), texts.values()
    views, ways = (Crop, WordDeletion, DeleteOneWord, WordRepetition), (spaces, icu, jieba)
    changes = {view.__name__: [[changed(view, way, rows) for way in ways] for rows in languages] for view in views}
    whole = {kind: [[masked_whole(kinds[kind], by, rows) for by in (0, 1)] for rows in languages] for kind in kinds}
    for table in (changes, whole):
        shares = pd.DataFrame(table, texts).map(lambda cell: " / ".join(f"{100 * sum(x) / len(x):.0f}" for x in cell))
        print(shares.sort_index().to_markdown(), end="\n\n")
