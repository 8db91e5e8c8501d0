"""Training pairs of QQP, Flickr30k and ParaNMT as published: `simcse prepare paraphrases`."""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from simcse_pl.data.prepare.conversion import NO_WORDS, Account, check_paths, clean, has_words, sound_rows, write_csv
from simcse_pl.data.readers.formats import Records, open_table
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.text_files import Unreadable, read_lines

Pair = tuple[str, str]
Lines = Iterator[tuple[int, str | Unreadable]]

NOT_DUPLICATE = "no duplicates"
REPEATED = "the same pair again"
REPEATED_CAPTION = "the same caption again"
ONLY_CAPTION = "the only caption of an image"
USED = "used"

_QUORA_COLUMNS = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
_QUESTION = r'(?:"([^"]*(?:""[^"]*)*)"|([^\t\n]*))'  # in quotation marks, which are doubled then, or as it is
_QUORA_ROW = re.compile(rf"\d+\t\d+\t\d+\t{_QUESTION}\t{_QUESTION}\t([01])")
_NO_QUORA_ROW = f"not the columns {', '.join(_QUORA_COLUMNS)}, with 0 or 1 in the last"

_CAPTION_HEADER = "image_name|"
_CAPTION = re.compile(
    r"([^|#\t]+)"  # the image
    r"(?:#\d+\t"  # results_20130124.token: 1000092795.jpg#0, a tab, the caption
    r"|\|\s*\d+(?:\||\s))"  # results.csv: 1000092795.jpg| 0| the caption; the published file lacks one second |
    r"(.*)"
)


def question_pairs(path: Path, on_invalid_row: str, account: Account) -> Iterator[Pair]:
    """Quora's questions that are duplicates of each other, each pair once (QQP).

    Args:
        path: quora_duplicate_questions.tsv; GLUE's train.tsv, a part of it with 134 thousand duplicates, which is
            what Table 4 has; or Kaggle's train.csv. Quoted as the first is, or not.
        on_invalid_row, account: see `conversion.sound_rows`.
    """
    records = _kaggle_rows(path) if ".csv" in path.suffixes else _quora_rows(path)
    seen: set[Pair] = set()
    for first, second, duplicate in sound_rows(path, records, on_invalid_row, account):
        pair = clean(first), clean(second)
        if duplicate == "0":
            fate = NOT_DUPLICATE
        elif not all(map(has_words, pair)):
            fate = NO_WORDS
        else:
            fate = REPEATED if pair in seen else USED
        account.add(path, fate)
        if fate == USED:
            seen.add(pair)
            yield pair


def caption_pairs(path: Path, on_invalid_row: str, account: Account) -> Iterator[Pair]:
    """Every two captions of an image (Flickr30k): 10 pairs of its 5, Table 4's 318 thousand of all 31,783 images.

    Args:
        path: results_20130124.token, or results.csv as Kaggle has it.
        on_invalid_row, account: see `conversion.sound_rows`; the rows are captions.
    """
    captions: dict[str, dict[str, None]] = {}
    for image, caption in sound_rows(path, _caption_rows(path), on_invalid_row, account):
        caption = clean(caption)
        others = captions.setdefault(image, {})
        if not has_words(caption):
            account.add(path, NO_WORDS)
        elif caption in others:
            account.add(path, REPEATED_CAPTION)
        else:
            others[caption] = None
    for others in captions.values():
        account.add(path, ONLY_CAPTION if len(others) == 1 else USED, len(others))
        yield from itertools.combinations(others, 2)


def translation_pairs(path: Path, on_invalid_row: str, account: Account) -> Iterator[Pair]:
    """Sentences and their paraphrases by translation there and back (ParaNMT), as they come, repeated ones too.

    Nothing is kept in memory: the corpus may have 5 million pairs, as Table 4's, or all 50.

    Args:
        path: para-nmt-5m-processed.txt, two columns, or para-nmt-50m.txt, which has a score as third.
        on_invalid_row, account: see `conversion.sound_rows`.
    """
    for first, second in sound_rows(path, _translation_rows(path), on_invalid_row, account):
        pair = clean(first), clean(second)
        fate = USED if all(map(has_words, pair)) else NO_WORDS
        account.add(path, fate)
        if fate == USED:
            yield pair


@dataclass(frozen=True)
class Published:
    """How its pairs are read, and the fates of its rows."""

    pairs: Callable[[Path, str, Account], Iterator[Pair]]
    fates: tuple[str, ...]


CORPORA = {
    "qqp": Published(question_pairs, (NOT_DUPLICATE, NO_WORDS, REPEATED, USED)),
    "flickr30k": Published(caption_pairs, (NO_WORDS, REPEATED_CAPTION, ONLY_CAPTION, USED)),
    "paranmt": Published(translation_pairs, (NO_WORDS, USED)),
}


def convert(corpus: str, file: str | Path, out: str | Path, on_invalid_row: str = "error") -> tuple[Account, int]:
    """Write the pairs of a corpus of Table 4, in its order, columns anchor and positive.

    Args:
        corpus: of `CORPORA`.
        file: of the corpus, as published, gzipped or not.
        out: a csv file; it appears when all of it is written.
        on_invalid_row: `error`, or `drop` to leave out and count rows that cannot be read.

    Returns:
        What became of each row read, and how many pairs were written.

    Raises:
        UserError: a file that is not there, is another corpus or is damaged; no pairs; an `out` that cannot be written.
    """
    path, out = Path(file), Path(out)
    check_paths([path], out)
    account = Account([path], CORPORA[corpus].fates)
    pairs = CORPORA[corpus].pairs(path, on_invalid_row, account)
    return account, write_csv(out, ("anchor", "positive"), pairs, account)


def _lines(path: Path) -> Lines:
    return enumerate(read_lines(path, path.suffix.lower() == ".gz"), 1)


def _quora_rows(path: Path) -> Records:
    """Two questions and `0` or `1`."""
    lines = _lines(path)
    _check_quora_header(path, str(next(lines, (1, ""))[1]).split("\t"))
    for number, line in _joined(lines):
        if isinstance(line, Unreadable):
            yield f"line {number}", line
        elif row := _QUORA_ROW.fullmatch(line):
            yield f"line {number}", (_unquoted(row[1], row[2]), _unquoted(row[3], row[4]), row[5])
        elif line.strip():
            yield f"line {number}", Unreadable(_NO_QUORA_ROW)


def _joined(lines: Lines) -> Lines:
    """Lines, with those made one that a question in quotation marks goes on over."""
    begun, first = "", 0
    for number, line in lines:
        if isinstance(line, Unreadable) or _QUORA_ROW.fullmatch(line):
            if begun:
                yield first, begun
            begun = ""
            yield number, line
            continue
        begun, first = (f"{begun}\n{line}", first) if begun else (line, number)
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
        raise UserError(f"{path} is no file of QQP: its first line should name the columns {', '.join(_QUORA_COLUMNS)}")


def _caption_rows(path: Path) -> Records:
    for number, line in _lines(path):
        if isinstance(line, Unreadable):
            yield f"line {number}", line
        elif row := _CAPTION.fullmatch(line):
            yield f"line {number}", (row[1].strip(), row[2])
        elif line.strip() and not (number == 1 and line.startswith(_CAPTION_HEADER)):
            yield f"line {number}", Unreadable("neither image.jpg#0, a tab and a caption, nor image.jpg| 0| caption")


def _translation_rows(path: Path) -> Records:
    for number, line in _lines(path):
        if isinstance(line, Unreadable):
            yield f"line {number}", line
        elif len(cells := line.split("\t")) in (2, 3):
            yield f"line {number}", (cells[0], cells[1])
        elif line.strip():
            yield f"line {number}", Unreadable("not a sentence, a tab and a paraphrase, with a tab and a score at most")
