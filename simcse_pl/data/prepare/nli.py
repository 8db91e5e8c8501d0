"""Convert SNLI, MultiNLI and ANLI as published to training files: `simcse prepare nli`."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from simcse_pl.data.prepare.conversion import (
    INVALID,
    REPEATED,
    USED,
    ConversionStats,
    Parsed,
    check_paths,
    usable_rows,
    write_csv,
)

LABELS = ("entailment", "neutral", "contradiction")

_NO_GOLD_LABEL = "-"
_MEANINGS = {label: label for label in LABELS} | {"e": LABELS[0], "n": LABELS[1], "c": LABELS[2]}  # ANLI has letters
_FIELDS = (
    ("sentence1", "sentence2", "gold_label"),  # SNLI and MultiNLI
    ("context", "hypothesis", "label"),  # ANLI
)

NO_LABEL = "no gold label"
RELABELED = "the same pair again with another label"
OTHER_LABEL = "another label"
CANDIDATE = "candidates for hard negatives"
NO_NEGATIVE = "no hard negative for the premise"


@dataclass(frozen=True)
class Kind:
    """A kind of training rows.

    Args:
        columns: names of the columns; `label` is the label of the pair.
        labels: labels of the pairs of premise and hypothesis that make a row.
        hard_negatives: for each of these labels, a random hypothesis of the premise is added to the row.
    """

    columns: tuple[str, ...]
    labels: tuple[str, ...]
    hard_negatives: tuple[str, ...] = ()


_PAIR = ("anchor", "positive")
KINDS = {
    "triplets": Kind((*_PAIR, "negative"), ("entailment",), ("contradiction",)),
    "entailment": Kind(_PAIR, ("entailment",)),
    "neutral": Kind(_PAIR, ("neutral",)),
    "contradiction": Kind(_PAIR, ("contradiction",)),
    "all": Kind(_PAIR, LABELS),
    "labelled": Kind(("premise", "hypothesis", "label"), LABELS),
    "two_hard_negatives": Kind((*_PAIR, "contradiction", "neutral"), ("entailment",), ("contradiction", "neutral")),
}


def convert(kind: str, files: Sequence[str | Path], out: str | Path, seed: int = 42) -> tuple[ConversionStats, int]:
    """Write the rows of a kind (Tables 4 and 7 of the paper), in the order of the files.

    Each entailment of a premise gives one triplet, with a random contradiction of that premise. Premises are compared
    as text without extra white space, so the hypotheses of a premise may be in several files. Of equal pairs only the
    first is used, so no hypothesis is both the positive and a hard negative of a premise. The random choice depends
    only on the seed, the pair and the premise's contradictions; it is the same for triplets and two_hard_negatives.

    The train files of SNLI and MultiNLI have 314,315 entailments and 942,069 pairs with a gold label, including
    repeated ones; these are the 314k and 942k of Table 4. The paper's authors released 275,601 triplets. How they
    selected them is not published. This function writes more, one for each entailment whose premise has a
    contradiction.

    Args:
        kind: one of `KINDS`.
        files: any number of jsonl files as published. Rows that cannot be read are left out and counted.
        out: the csv file to write, atomically.
        seed: seed of the choice of hard negatives.

    Returns:
        The counts of input rows by outcome, and the number of rows written.

    Raises:
        UserError: a file does not exist, there are no rows, or `out` is not valid.
    """
    paths, out = [Path(file) for file in files], Path(out)
    check_paths(paths, out)
    stats = ConversionStats()
    pairs = (pair for path in paths for pair in usable_rows(path, _pair, stats))
    return stats, write_csv(out, KINDS[kind].columns, _make_rows(pairs, KINDS[kind], seed, stats), stats)


def _make_rows(
    pairs: Iterable[Sequence[str]], kind: Kind, seed: int, stats: ConversionStats
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a kind, in the order of the pairs of premise, hypothesis and label."""
    first_pairs: list[tuple[str, str]] = []
    labels: dict[str, dict[str, str]] = {}  # of each hypothesis of each premise
    for premise, hypothesis, label in pairs:
        known = labels.setdefault(premise, {})
        if hypothesis in known:
            stats[REPEATED if known[hypothesis] == label else RELABELED] += 1
        else:
            known[hypothesis] = label
            first_pairs.append((premise, hypothesis))
    for premise, hypothesis in first_pairs:
        label = labels[premise][hypothesis]
        if label not in kind.labels:
            stats[CANDIDATE if label in kind.hard_negatives else OTHER_LABEL] += 1
            continue
        candidates = [
            [other for other, own in labels[premise].items() if own == wanted] for wanted in kind.hard_negatives
        ]
        if all(candidates):
            negatives = [random.Random(f"{seed}\t{premise}\t{hypothesis}").choice(some) for some in candidates]
            yield (premise, hypothesis, *negatives, *([label] if "label" in kind.columns else []))
        stats[USED if all(candidates) else NO_NEGATIVE] += 1


def _pair(line: str) -> Parsed:
    """Return the premise, the hypothesis and the label of a row."""
    try:
        row = json.loads(line)
        cells: list[str] = next([row[name] for name in names] for names in _FIELDS if set(names) <= set(row))
        " ".join(cells).encode()  # JSON allows half a character, UTF-8 does not
    except (ValueError, TypeError, StopIteration, RecursionError):
        return INVALID
    premise, hypothesis, label = cells
    if label == _NO_GOLD_LABEL:
        return NO_LABEL
    return (premise, hypothesis, _MEANINGS[label]) if label in _MEANINGS else INVALID
