"""Make a training file from files of natural language inference, such as SNLI, MultiNLI, XNLI, ANLI and OCNLI."""

import argparse
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simcse_pl.data.formats import DETECTED, Layout, OpenedTable, text_problem
from simcse_pl.data.labels import NLI_WORDS, class_name, class_names, label_text
from simcse_pl.data.records import NO_LABEL
from simcse_pl.data.rows import position_of
from simcse_pl.data.sources import open_source
from simcse_pl.tools.common import add_layout, column, layout
from simcse_pl.tools.conversion import INVALID, REPEATED, USED, ConversionStats, check_paths, checked_row, write_csv
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.terminal import show, tracked

log = logging.getLogger(__name__)
LABELS = tuple(NLI_WORDS)
_NO_GOLD_LABEL = (NO_LABEL, "", "-1")
_COLUMNS = (  # the first names that a file has
    ("sentence1", "sentence2", "gold_label"),  # SNLI, MultiNLI, XNLI, CNSD and KorNLI
    ("sentence1", "sentence2", "label"),  # OCNLI and CMNLI
    ("premise", "hypothesis", "gold_label"),  # KLUE
    ("premise", "hypothesis", "label"),  # XNLI on the hub
    ("context", "hypothesis", "label"),  # ANLI
)
NO_GOLD_LABEL = "no gold label"
RELABELED = "the same pair again with another label"
OTHER_LABEL = "another label"
CANDIDATE = "candidates for hard negatives"
NO_NEGATIVE = "no hard negative for the premise"
UNKNOWN_LABEL = "an unknown label"
OTHER_VALUE = "another value of --where"
_PAIR = ("anchor", "positive")


@dataclass(frozen=True)
class Kind:
    """A kind of training rows."""

    columns: tuple[str, ...]  # `label` is the label of the pair
    labels: tuple[str, ...]  # of the pairs of premise and hypothesis that make a row
    hard_negatives: tuple[str, ...] = ()  # for each of these labels, a random hypothesis of the premise is added


KINDS = {
    "triplets": Kind((*_PAIR, "negative"), ("entailment",), ("contradiction",)),
    "entailment": Kind(_PAIR, ("entailment",)),
    "neutral": Kind(_PAIR, ("neutral",)),
    "contradiction": Kind(_PAIR, ("contradiction",)),
    "all": Kind(_PAIR, LABELS),
    "labelled": Kind(("premise", "hypothesis", "label"), LABELS),
    "two_hard_negatives": Kind((*_PAIR, "contradiction", "neutral"), ("entailment",), ("contradiction", "neutral")),
}


def make_rows(
    kind: str,
    files: Sequence[str | Path],
    stats: ConversionStats,
    seed: int = 42,
    columns: Sequence[int | str] | None = None,
    labels: Sequence[str] | None = None,
    where: str | None = None,
    layout: Layout = DETECTED,
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a kind (Tables 4 and 7 of the paper), in the order of the files.

    Each entailment of a premise gives one triplet, with a random contradiction of that premise, which may be in another
    file. Of equal pairs only the first is used, so no hypothesis is both the positive and a hard negative of a premise.
    The random choice depends only on the seed, the pair and the premise's contradictions; it is the same for triplets
    and two_hard_negatives.

    The train files of SNLI and MultiNLI have the 314k entailments and the 942k labelled pairs of Table 4, including
    repeated ones. The paper's authors released 275,601 triplets. How they selected them is not published; these are
    more.

    Args:
        kind: one of `KINDS`.
        files: any number of files as published, or data sets on the Hub (see sources.open_source).
        stats: counts the input rows by outcome; those that cannot be read are left out.
        seed, columns, labels, where: the options of the command. Without `columns`, a file without column names has
            them in the order of the command. Labels may also be the words in Chinese, Japanese and Korean.
        layout: how the files are written.
    """
    wanted, meanings = KINDS[kind], dict(zip((*LABELS, *class_names(labels or "enc")), LABELS * 2, strict=True))
    labels_of: dict[tuple[str, str], str] = {}  # by premise and hypothesis
    hypotheses: dict[tuple[str, str], list[str]] = {}  # by premise and label
    tables = (open_source(file, layout, columns=columns or ()) for file in files)
    pairs = (pair for table in tables for pair in _pairs(table, columns, meanings, where, stats))
    for premise, hypothesis, label in pairs:
        if known := labels_of.get((premise, hypothesis)):
            stats[REPEATED if known == label else RELABELED] += 1
        else:
            labels_of[premise, hypothesis] = label
            hypotheses.setdefault((premise, label), []).append(hypothesis)
    premises = set()
    for (premise, hypothesis), label in labels_of.items():
        if label not in wanted.labels:
            stats[CANDIDATE if label in wanted.hard_negatives else OTHER_LABEL] += 1
            continue
        candidates = [hypotheses.get((premise, other), []) for other in wanted.hard_negatives]
        if all(candidates):
            negatives = [random.Random(f"{seed}\t{premise}\t{hypothesis}").choice(some) for some in candidates]
            premises.add(premise)
            yield (premise, hypothesis, *negatives, *([label] if "label" in wanted.columns else []))
        stats[USED if all(candidates) else NO_NEGATIVE] += 1
    log.info("%d of %d premises gave a row", len(premises), len({premise for premise, _ in labels_of}))


def _pairs(
    table: OpenedTable,
    columns: Sequence[int | str] | None,
    meanings: dict[str, str],
    where: str | None,
    stats: ConversionStats,
) -> Iterator[list[str]]:
    """Yield the premise, the hypothesis and the label of each row that can be used."""
    if columns is None:
        names = set(table.header or ())
        columns = next((known for known in _COLUMNS if names.issuperset(known)), (0, 1, 2) if not names else None)
    if columns is None:
        raise UserError(f"{table.source} has {table.layout}: give those of premise, hypothesis and label by --columns")
    positions = [position_of(table, column) for column in columns]
    column, given, wanted = (where or "").partition("=")
    if where and not given:
        raise UserError(f"--where {where}: write COLUMN=VALUE")
    position = position_of(table, column) if where else None
    for _, cells in tracked(table.records, f"reading {table.source}"):
        is_row = not isinstance(cells, str) and (position or 0) < len(cells)  # others are counted as invalid
        if position is not None and is_row and str(label_text(cells[position])) != wanted:
            stats[OTHER_VALUE] += 1
            continue
        if usable := checked_row(_triple(cells, positions, meanings), stats):
            yield usable


def _triple(cells: Sequence[Any] | str, positions: Sequence[int], meanings: dict[str, str]) -> list[str] | str:
    """Return the premise, the hypothesis and the label of a row, or why it is not used."""
    if isinstance(cells, str) or max(positions) >= len(cells):
        return INVALID
    *texts, label = (cells[i] for i in positions)
    if any(map(text_problem, texts)):
        return INVALID
    label = str(label_text(label)).strip()
    if label in _NO_GOLD_LABEL:
        return NO_GOLD_LABEL
    name = class_name(label)
    return [*texts, meanings[name]] if name in meanings else UNKNOWN_LABEL


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind",
        choices=KINDS,
        metavar="KIND",
        help="the rows to make; triplets: premise, entailment and a random contradiction of the premise; "
        "two_hard_negatives: triplets, and a random neutral hypothesis of the premise; entailment, neutral or "
        "contradiction: pairs of a premise and a hypothesis with this label; all: pairs with any label; labelled: "
        "premise, hypothesis and label",
    )
    text = "files as published, such as snli_1.0_train.jsonl, or of the hub, hf://datasets/OWNER/NAME[:SUBSET]"
    parser.add_argument("files", nargs="+", metavar="FILE", help=text)
    parser.add_argument("out", metavar="OUT", help="output file (.csv)")
    text = "columns of premise, hypothesis and label, by name or position (default: those of published files)"
    parser.add_argument("--columns", nargs=3, type=column, metavar="COLUMN", help=text)
    text = "how the files write entailment, neutral and contradiction, such as 0 1 2 (default: as words or letters)"
    parser.add_argument("--labels", nargs=3, metavar="LABEL", help=text)
    parser.add_argument("--where", metavar="COLUMN=VALUE", help="use only rows with this value, such as language=de")
    add_layout(parser)
    parser.add_argument("--seed", type=int, default=42, help="seed of the random choices (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    out, stats = Path(arguments.out), ConversionStats()
    check_paths([Path(file) for file in arguments.files if "://" not in file], out)
    options = {name: getattr(arguments, name) for name in ("kind", "files", "seed", "columns", "labels", "where")}
    rows = make_rows(**options, stats=stats, layout=layout(arguments))
    written = write_csv(out, KINDS[arguments.kind].columns, rows, stats)
    show(stats.table(arguments.kind).printed())
    print(f"{written} rows in {out}")
