"""The small hand-written data sets of the project, which README.md beside this file describes, and Wikipedia's."""

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path

from simcse_pl.utils.code import optional
from simcse_pl.utils.files import atomic_open, cache_folder

_GENSIM_DUMP = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
_COLUMNS = {"contradiction": "hard_neg", "entailment": "sent1", "neutral": "neutral"}


def path(name: str) -> str:
    """Return the path of nli.csv, sts_dev.tsv or sts_test.tsv."""
    return str(Path(__file__).parent / name)


def sentences() -> list[str]:
    """Return the 800 premises of nli.csv."""
    with open(path("nli.csv"), encoding="utf-8", newline="") as file:
        return [row["sent0"] for row in csv.DictReader(file)]


def gensim_sample() -> str:
    """Return the path of a file with the sentences of gensim's dump. It is written to the user's cache once.

    The dump has 106 articles of English Wikipedia, about 18,000 sentences.
    """
    code = Path(__file__).parents[2] / "tools" / "prepare_wikipedia.py"
    made = cache_folder() / f"wiki_sample-{hashlib.sha256(code.read_bytes()).hexdigest()[:12]}.txt"
    if not made.is_file():
        import gensim

        extract = optional("tools.prepare_wikipedia.extract")
        extract(Path(gensim.__file__).parent / _GENSIM_DUMP, made)
    return str(made)


def nli_pairs(labels: Sequence[str] = tuple(_COLUMNS)) -> str:
    """Return the path of a file of pairs from nli.csv, with the columns text1, text2 and label.

    The file is written to the user's cache once.

    Args:
        labels: which hypotheses are paired with the premises: contradiction, entailment, neutral or several of them.
    """
    source = Path(path("nli.csv"))
    version = hashlib.sha256(source.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]
    made = cache_folder() / f"nli_sample-{'-'.join(labels)}-{version}.csv"
    if not made.is_file():
        with open(source, encoding="utf-8", newline="") as file:
            triplets = list(csv.DictReader(file))
        rows = [(row["sent0"], row[_COLUMNS[label]], label) for row in triplets for label in labels]
        with atomic_open(made, newline="") as file:
            csv.writer(file).writerows([("text1", "text2", "label"), *rows])
    return str(made)
