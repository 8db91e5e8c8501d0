"""Training rows from SNLI, MultiNLI and ANLI as published: `simcse prepare nli`."""

import random
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simcse_pl.data.prepare.conversion import NO_WORDS, Account, check_paths, clean, has_words, sound_rows, write_csv
from simcse_pl.data.readers.formats import open_table, text_problem
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.text_files import Unreadable

LABELS = ("entailment", "neutral", "contradiction")

_NO_GOLD_LABEL = "-"
_MEANINGS = {label: label for label in LABELS} | {"e": LABELS[0], "n": LABELS[1], "c": LABELS[2]}  # ANLI's are letters
_FIELDS = (
    ("sentence1", "sentence2", "gold_label"),  # SNLI and MultiNLI
    ("context", "hypothesis", "label"),  # ANLI
)

NO_LABEL = "no gold label"
REPEATED = "the same pair again"
RELABELLED = "the same pair again, another label"
OTHER_LABEL = "of a label that is not wanted"
CANDIDATE = "hard negatives to draw from"
WITHOUT_NEGATIVE = "no hard negative for the premise"
USED = "used"
_FATES = (NO_LABEL, NO_WORDS, REPEATED, RELABELLED, OTHER_LABEL, CANDIDATE, WITHOUT_NEGATIVE, USED)


@dataclass(frozen=True)
class Kind:
    """What rows are made of.

    Args:
        columns: their names.
        labels: of the pairs that give a row each: premise and hypothesis.
        hard_negatives: the labels of the hypotheses of the same premise that are added, one drawn of each.
        labelled: whether the pair's own label is added.
    """

    columns: tuple[str, ...]
    labels: tuple[str, ...]
    hard_negatives: tuple[str, ...] = ()
    labelled: bool = False


_PAIR = ("anchor", "positive")
KINDS = {
    "triplets": Kind((*_PAIR, "negative"), ("entailment",), ("contradiction",)),
    "entailment": Kind(_PAIR, ("entailment",)),
    "neutral": Kind(_PAIR, ("neutral",)),
    "contradiction": Kind(_PAIR, ("contradiction",)),
    "all": Kind(_PAIR, LABELS),
    "labelled": Kind(("premise", "hypothesis", "label"), LABELS, labelled=True),
    "two_hard_negatives": Kind((*_PAIR, "contradiction", "neutral"), ("entailment",), ("contradiction", "neutral")),
}


@dataclass(frozen=True, slots=True)
class NliPair:
    """A premise, a hypothesis, what people say of the two, and the file that has it."""

    premise: str
    hypothesis: str
    label: str
    file: Path


def convert(
    kind: str, files: Sequence[str | Path], out: str | Path, seed: int = 42, on_invalid_row: str = "error"
) -> tuple[Account, int]:
    """Write the rows of Table 4 or 7 that a kind names, in the order of the files.

    A premise is its text: the hypotheses of equal premises belong together, whichever file they stand in. White space
    does not count. Of a pair that comes again the first stands, so that no hypothesis is a premise's positive and its
    hard negative. Each entailment of a premise gives a triplet of its own, with a contradiction of that premise drawn
    for it: what is drawn depends on the seed, the pair and the premise's contradictions alone, and is the same for
    triplets and two_hard_negatives.

    The train files of SNLI and MultiNLI have 314,315 entailments and 942,069 pairs with a gold label, repeated ones
    included: Table 4's 314k and 942k. Of these the paper's authors made and released 275,601 triplets, how is not
    published; a triplet for every entailment that has a contradiction, as here, is more.

    Args:
        kind: of `KINDS`.
        files: jsonl as published, in any order and number.
        out: a csv file; it appears when all of it is written.
        seed: of the hard negatives that are drawn.
        on_invalid_row: `error`, or `drop` to leave out and count rows that cannot be read.

    Returns:
        What became of each row read, and how many were written.

    Raises:
        UserError: a file that is not there, is no such corpus or is damaged; no rows; an `out` that cannot be written.
    """
    paths, out = [Path(file) for file in files], Path(out)
    check_paths(paths, out)
    account = Account(paths, _FATES)
    pairs = (pair for path in paths for pair in read_pairs(path, on_invalid_row, account))
    return account, write_csv(out, KINDS[kind].columns, make_rows(pairs, KINDS[kind], seed, account), account)


def read_pairs(path: Path, on_invalid_row: str, account: Account) -> Iterator[NliPair]:
    """The pairs of a file that have a gold label and words, in its order.

    Raises:
        UserError: a file of another kind, or a row that cannot be read.
    """
    for premise, hypothesis, label in sound_rows(path, _records(path), on_invalid_row, account):
        premise, hypothesis = clean(premise), clean(hypothesis)
        if label == _NO_GOLD_LABEL:
            account.add(path, NO_LABEL)
        elif not has_words(premise) or not has_words(hypothesis):
            account.add(path, NO_WORDS)
        else:
            yield NliPair(premise, hypothesis, _MEANINGS[label], path)


def make_rows(pairs: Iterable[NliPair], kind: Kind, seed: int, account: Account) -> Iterator[tuple[str, ...]]:
    """The rows of a kind, in the order of the pairs that give them."""
    kept, labels = _without_repeated(pairs, account)
    for pair in kept:
        if pair.label not in kind.labels:
            account.add(pair.file, CANDIDATE if pair.label in kind.hard_negatives else OTHER_LABEL)
            continue
        candidates = [_hypotheses(labels[pair.premise], label) for label in kind.hard_negatives]
        if not all(candidates):
            account.add(pair.file, WITHOUT_NEGATIVE)
            continue
        account.add(pair.file, USED)
        negatives = [random.Random(f"{seed}\t{pair.premise}\t{pair.hypothesis}").choice(some) for some in candidates]
        yield (pair.premise, pair.hypothesis, *negatives, *([pair.label] if kind.labelled else []))


def _without_repeated(pairs: Iterable[NliPair], account: Account) -> tuple[list[NliPair], dict[str, dict[str, str]]]:
    """Each pair once; and of each premise, the labels of its hypotheses."""
    kept: list[NliPair] = []
    labels: dict[str, dict[str, str]] = {}
    for pair in pairs:
        known = labels.setdefault(pair.premise, {})
        first = known.get(pair.hypothesis)
        if first is None:
            known[pair.hypothesis] = pair.label
            kept.append(pair)
        else:
            account.add(pair.file, REPEATED if first == pair.label else RELABELLED)
    return kept, labels


def _hypotheses(labels: dict[str, str], wanted: str) -> list[str]:
    return [hypothesis for hypothesis, label in labels.items() if label == wanted]


def _records(path: Path) -> Iterator[tuple[str, tuple[str, str, str] | Unreadable]]:
    """The place, premise, hypothesis and label of every row."""
    table = open_table(path)
    header = table.header or []
    fields = next((fields for fields in _FIELDS if set(fields) <= set(header)), None)
    if fields is None:
        wanted = " or ".join(", ".join(fields) for fields in _FIELDS)
        raise UserError(f"{path} is no jsonl file of SNLI, MultiNLI or ANLI: its first row should have {wanted}")
    for place, cells in table.records:
        if isinstance(cells, Unreadable):
            yield place, cells
            continue
        row = dict(zip(header, cells, strict=False))
        problem = _problem({field: row.get(field) for field in fields})
        yield place, Unreadable(problem) if problem else (row[fields[0]], row[fields[1]], row[fields[2]])


def _problem(row: dict[str, Any]) -> str | None:
    """What is wrong with a row, whose label comes last; None where nothing is."""
    for field, value in row.items():
        if problem := text_problem(value):
            return f"{field} {problem}"
    if value != _NO_GOLD_LABEL and value not in _MEANINGS:
        wanted = ", ".join(_MEANINGS)
        return f"{field} is {reprlib.repr(value)}; it should be one of {wanted}, or {_NO_GOLD_LABEL} for none"
    return None
