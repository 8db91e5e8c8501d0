"""Make a file of training pairs from the released file of QQP, Flickr30k or ParaNMT.

The pairs are in the order of the file, which may be gzipped. Rows that cannot be read are left out and counted.
"""

import argparse
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from simcse_pl.tools.conversion import INVALID, REPEATED, USED, ConversionStats, check_paths, checked_row, write_csv
from simcse_pl.utils.files import read_lines
from simcse_pl.utils.terminal import show, tracked

Pairs = Iterator[Sequence[str]]
NOT_DUPLICATE = "not duplicates"
REPEATED_CAPTION = "the same caption again"
ONLY_CAPTION = "the only caption of an image"
_IDS = r"\d+\t\d+\t\d+\t"
_QUESTION = (
    rf'(?:"((?:[^"\n]++|""|\n(?!{_IDS}))*+)"'  # in quotation marks, which are doubled inside; it may have several lines
    r"|([^\t\n]*))"
)
_QUORA_ROW = re.compile(rf"^{_IDS}{_QUESTION}\t{_QUESTION}\t([01])$", re.MULTILINE)
_CAPTION_HEADER = "image_name|"
_CAPTION = re.compile(
    r"([^|#\t]+)"  # the image
    r"(?:#\d+\t"  # results_20130124.token: 1000092795.jpg#0, a tab, the caption
    r"|\|\s*\d+(?:\||\s))"  # results.csv: 1000092795.jpg| 0| the caption; the published file lacks one second |
    r"(.*)"
)


def question_pairs(path: Path, stats: ConversionStats) -> Pairs:
    """Yield the pairs of Quora questions that are duplicates (QQP), without repeated pairs.

    Args:
        path: quora_duplicate_questions.tsv; or GLUE's train.tsv, a part of it with the 134 thousand duplicates of
            Table 4. They may be quoted or not.
    """
    text = "\n".join(itertools.islice(read_lines(path), 1, None))  # without the header
    stats[INVALID] += sum(1 for line in _QUORA_ROW.sub("", text).split("\n") if line.strip())
    seen: set[tuple[str, ...]] = set()
    for row in _QUORA_ROW.finditer(text):
        questions = [row[i + 1] if row[i] is None else row[i].replace('""', '"') for i in (1, 3)]
        if cells := checked_row(questions if row[5] == "1" else NOT_DUPLICATE, stats):
            pair = tuple(cells)
            stats[REPEATED if pair in seen else USED] += 1
            if pair not in seen:
                seen.add(pair)
                yield pair


def caption_pairs(path: Path, stats: ConversionStats) -> Pairs:
    """Yield every two captions of an image (Flickr30k): 10 pairs of 5 captions, 318 thousand in all (Table 4).

    Args:
        path: results_20130124.token, or Kaggle's results.csv.
    """
    captions: dict[str, dict[str, None]] = {}
    for line in _lines(path):
        if line.startswith(_CAPTION_HEADER):
            continue
        row = _CAPTION.fullmatch(line)
        if cells := checked_row((row[1].strip(), row[2]) if row else INVALID, stats):
            image, caption = cells
            others = captions.setdefault(image, {})
            if caption in others:
                stats[REPEATED_CAPTION] += 1
            others[caption] = None
    for others in captions.values():
        stats[ONLY_CAPTION if len(others) == 1 else USED] += len(others)
        yield from itertools.combinations(others, 2)


def translation_pairs(path: Path, stats: ConversionStats) -> Pairs:
    """Yield sentences and their paraphrases by back-translation (ParaNMT), in order and including repeated ones.

    Nothing is kept in memory: the corpus may have 5 million pairs, as in Table 4, or all 50 million.

    Args:
        path: para-nmt-5m-processed.txt, with two columns, or para-nmt-50m.txt, with a score as the third.
    """
    for line in _lines(path):
        cells = line.split("\t")
        if pair := checked_row(cells[:2] if len(cells) in (2, 3) else INVALID, stats):
            stats[USED] += 1
            yield pair


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file that are not blank."""
    return (line for line in tracked(read_lines(path), f"reading {path.name}") if line.strip())


# of Table 4, by name
CORPORA = {"qqp": question_pairs, "flickr30k": caption_pairs, "paranmt": translation_pairs}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "the dataset: qqp (duplicate questions), flickr30k (all pairs of captions of an image) or paranmt"
    parser.add_argument("corpus", choices=CORPORA, metavar="CORPUS", help=text)
    text = (
        "its file: quora_duplicate_questions.tsv or GLUE's train.tsv; results_20130124.token or Kaggle's results.csv; "
        "para-nmt-5m-processed.txt or para-nmt-50m.txt"
    )
    parser.add_argument("file", metavar="FILE", help=text)
    parser.add_argument("out", metavar="OUT", help="output file (.csv) with the columns anchor and positive")


def run(arguments: argparse.Namespace) -> None:
    file, out, stats = Path(arguments.file), Path(arguments.out), ConversionStats()
    check_paths([file], out)
    written = write_csv(out, ("anchor", "positive"), CORPORA[arguments.corpus](file, stats), stats)
    show(stats.table(arguments.corpus).printed())
    print(f"{written} pairs in {arguments.out}")
