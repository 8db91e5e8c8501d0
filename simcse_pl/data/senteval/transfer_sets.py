"""Transfer data: the seven classification tasks of a SentEval bundle."""

import reprlib
from dataclasses import dataclass
from pathlib import Path

from simcse_pl.data.senteval.bundle import NotInBundleError, text_lines, warn_if_short
from simcse_pl.utils.errors import UserError

TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC")  # the order of the paper's Table E.1

# Files of one class each, that of label 1 first, as SentEval has them.
_ONE_CLASS_A_FILE = {
    "MR": ("rt-polarity.pos", "rt-polarity.neg"),
    "CR": ("custrev.pos", "custrev.neg"),
    "SUBJ": ("subj.objective", "subj.subjective"),
    "MPQA": ("mpqa.pos", "mpqa.neg"),
}
_TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_ENCODINGS = ("utf-8-sig", "latin-1")  # MR, SUBJ and SST have bytes that are no UTF-8


@dataclass(frozen=True)
class Example:
    """A sentence, or the two of a paraphrase task, and its class, counted from 0."""

    sentences: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class TransferTask:
    """A task's examples by split: `all`; `train` and `test`; or `train`, `dev` and `test`.

    Within a split they stand as SentEval puts them, by number of words and then by label, for its folds depend on it.
    """

    name: str
    splits: dict[str, list[Example]]


def load_transfer_task(senteval_dir: str | Path, name: str) -> TransferTask:
    """One of `TRANSFER_TASKS` from a SentEval bundle (its data/downstream).

    Args:
        senteval_dir: holds MR, CR, SUBJ, MPQA, SST/binary, TREC and MRPC, or some of them.
        name: of the task.

    Raises:
        UserError: the bundle has no such task (NotInBundleError), or a file of it is cut short or damaged.
    """
    folder = Path(senteval_dir) / name / ("binary" if name == "SST" else "")
    if not folder.is_dir():
        raise NotInBundleError(f"no folder {folder}")
    match name:
        case "SST":
            splits = {split: _sst(folder / f"sentiment-{split}") for split in ("train", "dev", "test")}
        case "TREC":
            splits = {"train": _trec(folder / "train_5500.label"), "test": _trec(folder / "TREC_10.label")}
        case "MRPC":
            splits = {split: _mrpc(folder / f"msr_paraphrase_{split}.txt") for split in ("train", "test")}
        case _:
            positive, negative = (_one_class(folder / file) for file in _ONE_CLASS_A_FILE[name])
            splits = {
                "all": [Example((text,), 1) for text in positive] + [Example((text,), 0) for text in negative],
            }
    scored = splits.get("test", splits.get("all", []))
    warn_if_short(name, "test", len(scored))
    return TransferTask(name, {split: sorted(examples, key=_sentevals_order) for split, examples in splits.items()})


def _sentevals_order(example: Example) -> tuple[int, ...]:
    return (*(len(sentence.split()) for sentence in example.sentences), example.label)


def _one_class(path: Path) -> list[str]:
    """A sentence a line; a blank line is an empty sentence (CR has some), as in SentEval."""
    sentences = [_words(line) for line in text_lines(path, _ENCODINGS)]
    if not any(sentences):
        raise UserError(f"{path} holds no sentences")
    return sentences


def _sst(path: Path) -> list[Example]:
    return [
        Example((_sentence(path, number, cells[0]),), _label(path, number, cells[1], ("0", "1")))
        for number, cells in _rows(path, columns=2)
    ]


def _mrpc(path: Path) -> list[Example]:
    return [
        Example(
            (_sentence(path, number, cells[3]), _sentence(path, number, cells[4])),
            _label(path, number, cells[0], ("0", "1")),
        )
        for number, cells in _rows(path, columns=5, header=True)
    ]


def _trec(path: Path) -> list[Example]:
    examples = []
    for number, cells in _rows(path, columns=1):
        category, question = [*"\t".join(cells).split(maxsplit=1), ""][:2]  # `NUM:dist How far is it ...`
        label = _label(path, number, category.partition(":")[0], _TREC_CLASSES)
        examples.append(Example((_sentence(path, number, question),), label))
    return examples


def _rows(path: Path, columns: int, header: bool = False) -> list[tuple[int, list[str]]]:
    """Line numbers and tab-separated cells; blank lines are passed over."""
    rows = []
    for number, line in enumerate(text_lines(path, _ENCODINGS), 1):
        if not line.strip() or (header and number == 1):
            continue
        cells = line.split("\t")
        if len(cells) < columns:
            raise UserError(f"{path}, line {number}: {len(cells)} columns where there should be {columns}")
        rows.append((number, cells))
    if not rows:
        raise UserError(f"{path} holds no rows")
    return rows


def _label(path: Path, number: int, cell: str, classes: tuple[str, ...]) -> int:
    if cell.strip() not in classes:
        shown, wanted = reprlib.repr(cell), ", ".join(classes)
        raise UserError(f"{path}, line {number}: {shown} is no label; it should be one of {wanted}")
    return classes.index(cell.strip())


def _sentence(path: Path, number: int, cell: str) -> str:
    if not cell.strip():
        raise UserError(f"{path}, line {number}: a sentence is empty")
    return _words(cell)


def _words(text: str) -> str:
    """Words with one space between them, as SentEval's splitting and joining leaves them."""
    return " ".join(text.split())
