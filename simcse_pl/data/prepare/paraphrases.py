"""Convert QQP, Flickr30k and ParaNMT as published to files of training pairs: `simcse prepare paraphrases`."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from simcse_pl.data.prepare.conversion import (
    NO_WORDS,
    REPEATED,
    USED,
    ConversionStats,
    check_paths,
    clean,
    has_words,
    valid_rows,
    write_csv,
)
from simcse_pl.data.readers.formats import Cells, Records, lines_of, open_table, parse_lines
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.text_files import Unreadable

Pair = tuple[str, str]
Lines = Iterator[tuple[str, str | Unreadable]]

NOT_DUPLICATE = "not duplicates"
REPEATED_CAPTION = "the same caption again"
ONLY_CAPTION = "the only caption of an image"

_QUORA_COLUMNS = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
_QUESTION = r'(?:"([^"]*(?:""[^"]*)*)"|([^\t\n]*))'  # in quotation marks, which are doubled inside, or without
_QUORA_ROW = re.compile(rf"\d+\t\d+\t\d+\t{_QUESTION}\t{_QUESTION}\t([01])")
_NO_QUORA_ROW = f"not the columns {', '.join(_QUORA_COLUMNS)}, with 0 or 1 in the last"

_CAPTION_HEADER = "image_name|"
_CAPTION = re.compile(
    r"([^|#\t]+)"  # the image
    r"(?:#\d+\t"  # results_20130124.token: 1000092795.jpg#0, a tab, the caption
    r"|\|\s*\d+(?:\||\s))"  # results.csv: 1000092795.jpg| 0| the caption; the published file lacks one second |
    r"(.*)"
)


def question_pairs(path: Path, on_invalid_row: str, stats: ConversionStats) -> Iterator[Pair]:
    """Yield the pairs of Quora questions that are duplicates (QQP), without repeated pairs.

    Args:
        path: quora_duplicate_questions.tsv; GLUE's train.tsv, a part of it with the 134 thousand duplicates of
            Table 4; or Kaggle's train.csv. The tsv files may be quoted or not.
        on_invalid_row, stats: see `conversion.valid_rows`.
    """
    records = _kaggle_rows(path) if ".csv" in path.suffixes else _quora_rows(path)
    seen: set[Pair] = set()
    for first, second, duplicate in valid_rows(path, records, on_invalid_row, stats):
        pair = clean(first), clean(second)
        if duplicate == "0":
            stats[NOT_DUPLICATE] += 1
        elif not all(map(has_words, pair)):
            stats[NO_WORDS] += 1
        elif pair in seen:
            stats[REPEATED] += 1
        else:
            stats[USED] += 1
            seen.add(pair)
            yield pair


def caption_pairs(path: Path, on_invalid_row: str, stats: ConversionStats) -> Iterator[Pair]:
    """Yield every two captions of an image (Flickr30k): 10 pairs of 5 captions, 318 thousand in all (Table 4).

    Args:
        path: results_20130124.token, or Kaggle's results.csv.
        on_invalid_row, stats: see `conversion.valid_rows`; a row is a caption.
    """
    records = (record for record in parse_lines(path, _caption) if record[1] != ())
    captions: dict[str, dict[str, None]] = {}
    for image, caption in valid_rows(path, records, on_invalid_row, stats):
        caption = clean(caption)
        others = captions.setdefault(image, {})
        if not has_words(caption):
            stats[NO_WORDS] += 1
        elif caption in others:
            stats[REPEATED_CAPTION] += 1
        else:
            others[caption] = None
    for others in captions.values():
        stats[ONLY_CAPTION if len(others) == 1 else USED] += len(others)
        yield from itertools.combinations(others, 2)


def translation_pairs(path: Path, on_invalid_row: str, stats: ConversionStats) -> Iterator[Pair]:
    """Yield sentences and their paraphrases by back-translation (ParaNMT), in order and including repeated ones.

    Nothing is kept in memory: the corpus may have 5 million pairs, as in Table 4, or all 50 million.

    Args:
        path: para-nmt-5m-processed.txt, with two columns, or para-nmt-50m.txt, with a score as the third.
        on_invalid_row, stats: see `conversion.valid_rows`.
    """
    for first, second in valid_rows(path, parse_lines(path, _translation), on_invalid_row, stats):
        pair = clean(first), clean(second)
        if all(map(has_words, pair)):
            stats[USED] += 1
            yield pair
        else:
            stats[NO_WORDS] += 1


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


def _quora_rows(path: Path) -> Records:
    """Yield two questions and `0` or `1`."""
    lines = lines_of(path)
    _check_quora_header(path, str(next(lines, ("", ""))[1]).split("\t"))
    for place, line in _joined(lines):
        if isinstance(line, Unreadable):
            yield place, line
        elif row := _QUORA_ROW.fullmatch(line):
            yield place, (_unquoted(row[1], row[2]), _unquoted(row[3], row[4]), row[5])
        elif line.strip():
            yield place, Unreadable(_NO_QUORA_ROW)


def _joined(lines: Lines) -> Lines:
    """Join the lines of a quoted question that has several. A complete row ends one whose quotation mark is missing."""
    begun, first = "", ""
    for place, line in lines:
        if isinstance(line, Unreadable) or _QUORA_ROW.fullmatch(line):
            if begun:
                yield first, begun
            begun = ""
            yield place, line
            continue
        begun, first = (f"{begun}\n{line}", first) if begun else (line, place)
        if begun.count('"') % 2 == 0:
            yield first, begun
            begun = ""
    if begun:
        yield first, begun


def _unquoted(quoted: str | None, plain: str) -> str:
    return plain if quoted is None else quoted.replace('""', '"')


def _kaggle_rows(path: Path) -> Records:
    table = open_table(path)
    _check_quora_header(path, table.header or [])
    for place, cells in table.records:
        if isinstance(cells, Unreadable):
            yield place, cells
        elif len(cells) != len(_QUORA_COLUMNS) or cells[-1] not in ("0", "1"):
            yield place, Unreadable(_NO_QUORA_ROW)
        else:
            yield place, tuple(cells[3:])


def _check_quora_header(path: Path, header: list[str]) -> None:
    if header != _QUORA_COLUMNS:
        columns = ", ".join(_QUORA_COLUMNS)
        raise UserError(f"{path} is not a file of QQP: its first line should name the columns {columns}")


def _caption(line: str) -> Cells:
    if line.startswith(_CAPTION_HEADER):
        return ()
    row = _CAPTION.fullmatch(line)
    if row is None:
        return Unreadable("neither image.jpg#0, a tab and a caption, nor image.jpg| 0| caption")
    return row[1].strip(), row[2]


def _translation(line: str) -> Cells:
    cells = line.split("\t")
    if len(cells) not in (2, 3):
        return Unreadable("not a sentence, a tab and a paraphrase, and at most another tab and a score")
    return cells[:2]
