"""Convert QQP, Flickr30k and ParaNMT as published to files of training pairs: `simcse prepare paraphrases`."""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from simcse_pl.data.prepare.conversion import (
    REPEATED,
    USED,
    ConversionStats,
    Parsed,
    check_paths,
    usable_rows,
    write_csv,
)
from simcse_pl.data.readers.formats import lines_of, parse_lines, parse_records
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import Unreadable

Pairs = Iterator[Sequence[str]]
Lines = Iterator[tuple[str, str | Unreadable]]

NOT_DUPLICATE = "not duplicates"
REPEATED_CAPTION = "the same caption again"
ONLY_CAPTION = "the only caption of an image"

_QUORA_COLUMNS = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
_QUESTION = r'(?:"([^"]*(?:""[^"]*)*)"|([^\t\n]*))'  # in quotation marks, which are doubled inside, or without
_QUORA_ROW = re.compile(rf"\d+\t\d+\t\d+\t{_QUESTION}\t{_QUESTION}\t([01])")

_CAPTION_HEADER = "image_name|"
_CAPTION = re.compile(
    r"([^|#\t]+)"  # the image
    r"(?:#\d+\t"  # results_20130124.token: 1000092795.jpg#0, a tab, the caption
    r"|\|\s*\d+(?:\||\s))"  # results.csv: 1000092795.jpg| 0| the caption; the published file lacks one second |
    r"(.*)"
)


def question_pairs(path: Path, on_invalid_row: str, stats: ConversionStats) -> Pairs:
    """Yield the pairs of Quora questions that are duplicates (QQP), without repeated pairs.

    Args:
        path: quora_duplicate_questions.tsv; or GLUE's train.tsv, a part of it with the 134 thousand duplicates of
            Table 4. They may be quoted or not.
        on_invalid_row, stats: see `conversion.usable_rows`.
    """
    seen: set[tuple[str, ...]] = set()
    for row in usable_rows(path, _quora_rows(path), on_invalid_row, stats):
        pair = tuple(row)
        stats[REPEATED if pair in seen else USED] += 1
        if pair not in seen:
            seen.add(pair)
            yield pair


def caption_pairs(path: Path, on_invalid_row: str, stats: ConversionStats) -> Pairs:
    """Yield every two captions of an image (Flickr30k): 10 pairs of 5 captions, 318 thousand in all (Table 4).

    Args:
        path: results_20130124.token, or Kaggle's results.csv.
        on_invalid_row, stats: see `conversion.usable_rows`; a row is a caption.
    """
    records = (record for record in parse_lines(path, _caption) if record[1])
    captions: dict[str, dict[str, None]] = {}
    for image, caption in usable_rows(path, records, on_invalid_row, stats):
        others = captions.setdefault(image, {})
        if caption in others:
            stats[REPEATED_CAPTION] += 1
        others[caption] = None
    for others in captions.values():
        stats[ONLY_CAPTION if len(others) == 1 else USED] += len(others)
        yield from itertools.combinations(others, 2)


def translation_pairs(path: Path, on_invalid_row: str, stats: ConversionStats) -> Pairs:
    """Yield sentences and their paraphrases by back-translation (ParaNMT), in order and including repeated ones.

    Nothing is kept in memory: the corpus may have 5 million pairs, as in Table 4, or all 50 million.

    Args:
        path: para-nmt-5m-processed.txt, with two columns, or para-nmt-50m.txt, with a score as the third.
        on_invalid_row, stats: see `conversion.usable_rows`.
    """
    for pair in usable_rows(path, parse_lines(path, _translation), on_invalid_row, stats):
        stats[USED] += 1
        yield pair


CORPORA = {"qqp": question_pairs, "flickr30k": caption_pairs, "paranmt": translation_pairs}


def convert(
    corpus: str, file: str | Path, out: str | Path, on_invalid_row: str = "error"
) -> tuple[ConversionStats, int]:
    """Write the pairs of a corpus of Table 4, in order, with the columns anchor and positive.

    Args:
        corpus: one of `CORPORA`.
        file: the corpus as published, gzipped or not.
        out: the csv file to write, atomically.
        on_invalid_row: `error`, or `drop` to skip and count rows that cannot be read.

    Returns:
        The counts of input rows by outcome, and the number of pairs written.

    Raises:
        UserError: the file does not exist, is damaged or not of this corpus, there are no pairs, or `out` is not valid.
    """
    path, out = Path(file), Path(out)
    check_paths([path], out)
    stats = ConversionStats()
    pairs = CORPORA[corpus](path, on_invalid_row, stats)
    return stats, write_csv(out, ("anchor", "positive"), pairs, stats)


def _quora_rows(path: Path) -> Iterator[tuple[str, Parsed]]:
    """Yield the place and the two questions of each row of a tsv file."""

    def questions(line: str) -> Parsed:
        if not (row := _QUORA_ROW.fullmatch(line)):
            return Unreadable(f"not the columns {', '.join(_QUORA_COLUMNS)}, with 0 or 1 in the last")
        first, second = (row[i + 1] if row[i] is None else row[i].replace('""', '"') for i in (1, 3))
        return (first, second) if row[5] == "1" else NOT_DUPLICATE

    lines = lines_of(path)
    if str(next(lines, ("", ""))[1]).split("\t") != _QUORA_COLUMNS:
        columns = ", ".join(_QUORA_COLUMNS)
        raise UserError(f"{path} is not a file of QQP: its first line should name the columns {columns}")
    return parse_records(_joined(lines), questions)


def _joined(lines: Lines) -> Lines:
    """Join the lines of a quoted question that has several. A complete row ends one whose quotation mark is missing."""
    begun, first = "", ""
    for place, line in lines:
        if isinstance(line, Unreadable) or _QUORA_ROW.fullmatch(line):
            if begun:
                yield first, begun
            begun = ""
            yield place, line
        elif begun or line.strip():
            begun, first = (f"{begun}\n{line}", first) if begun else (line, place)
            if begun.count('"') % 2 == 0:
                yield first, begun
                begun = ""
    if begun:
        yield first, begun


def _caption(line: str) -> Parsed:
    if line.startswith(_CAPTION_HEADER):
        return ()
    row = _CAPTION.fullmatch(line)
    if row is None:
        return Unreadable("neither image.jpg#0, a tab and a caption, nor image.jpg| 0| caption")
    return row[1].strip(), row[2]


def _translation(line: str) -> Parsed:
    cells = line.split("\t")
    if len(cells) not in (2, 3):
        return Unreadable("not a sentence, a tab and a paraphrase, and at most another tab and a score")
    return cells[:2]
