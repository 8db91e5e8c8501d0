"""The small hand-written data sets of the project; README.md beside this file describes them."""

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_open, cache_folder

_COLUMNS = {"contradiction": "hard_neg", "entailment": "sent1", "neutral": "neutral"}


def path(name: str) -> str:
    """Return the path of nli.csv, sts_dev.tsv or sts_test.tsv."""
    return str(Path(__file__).parent / name)


def mini_backbone() -> str:
    """Return the folder of the backbone of size=mini, which experiment=mini_backbone makes.

    Raises:
        UserError: it has not been made.
    """
    folder = cache_folder() / "mini_backbone" / "encoder"
    if not folder.is_dir():
        raise UserError("size=mini needs its backbone: make it once by `simcse train experiment=mini_backbone`")
    return str(folder)


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
