"""Data of the seven transfer tasks and the ten probing tasks of a SentEval bundle."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simcse_pl.data.senteval.sts_sets import tab_separated_rows, text_lines
from simcse_pl.utils.errors import UserError

TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC")  # the order of the paper's Table E.1

# In the order of Conneau et al. (2018), with their files.
_PROBING_FILES = {
    "Length": "sentence_length.txt",
    "WordContent": "word_content.txt",
    "Depth": "tree_depth.txt",
    "TopConstituents": "top_constituents.txt",
    "BigramShift": "bigram_shift.txt",
    "Tense": "past_present.txt",
    "SubjNumber": "subj_number.txt",
    "ObjNumber": "obj_number.txt",
    "OddManOut": "odd_man_out.txt",
    "CoordinationInversion": "coordination_inversion.txt",
}
PROBING_TASKS = tuple(_PROBING_FILES)
_PROBING_SPLITS = {"tr": "train", "va": "dev", "te": "test"}

# Files of one class each, label 1 first.
_ONE_CLASS_A_FILE = {
    "MR": ("rt-polarity.pos", "rt-polarity.neg"),
    "CR": ("custrev.pos", "custrev.neg"),
    "SUBJ": ("subj.objective", "subj.subjective"),
    "MPQA": ("mpqa.pos", "mpqa.neg"),
}
_TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


@dataclass(frozen=True)
class Example:
    """A sentence, or two of a paraphrase task, and the number of its class."""

    sentences: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class TransferTask:
    """The examples of a task by split: `all`; `train` and `test`; or `train`, `dev` and `test`.

    They are in SentEval's order, by number of words and then by label, because its folds depend on the order.
    """

    name: str
    splits: dict[str, list[Example]]


def load_transfer_task(senteval_dir: str | Path, name: str) -> TransferTask:
    """Load one of `TRANSFER_TASKS` or `PROBING_TASKS` from a SentEval bundle (its data/downstream).

    Args:
        senteval_dir: contains MR, CR, SUBJ, MPQA, SST/binary, TREC and MRPC, or some of them. The probing tasks are
            in the folder `probing` beside it.
        name: the task.
    """
    folder = Path(senteval_dir) / name / ("binary" if name == "SST" else "")
    if name in PROBING_TASKS:
        folder = Path(senteval_dir).absolute().parent / "probing"
    splits: dict[str, list[Example]] = {}
    match name:
        case "SST":
            for split in ("train", "dev", "test"):
                rows = tab_separated_rows(folder / f"sentiment-{split}")
                splits[split] = [_example(place, cells[:1], cells[-1], ("0", "1")) for place, cells in rows]
        case "TREC":
            splits = {"train": _trec(folder / "train_5500.label"), "test": _trec(folder / "TREC_10.label")}
        case "MRPC":
            for split in ("train", "test"):
                rows = tab_separated_rows(folder / f"msr_paraphrase_{split}.txt", header=True)
                columns = [(place, cells[0], [*cells[3:5], "", ""][:2]) for place, cells in rows]
                splits[split] = [_example(place, texts, label, ("0", "1")) for place, label, texts in columns]
        case _ if name in PROBING_TASKS:
            splits = _probing(folder / _PROBING_FILES[name])
        case _:
            # A blank line is an empty sentence (CR has some), as in SentEval.
            files = zip((1, 0), _ONE_CLASS_A_FILE[name], strict=True)
            splits["all"] = [
                Example((_words(line),), label) for label, file in files for line in text_lines(folder / file)
            ]
    for examples in splits.values():
        examples.sort(key=lambda example: (*(len(text.split()) for text in example.sentences), example.label))
    return TransferTask(name, splits)


def _probing(path: Path) -> dict[str, list[Example]]:
    rows = [(place, [*cells, "", ""][:3]) for place, cells in tab_separated_rows(path)]  # split, class, sentence
    classes = tuple(sorted({label.strip() for _, (short, label, _) in rows if short == "tr"}))
    return {
        split: [_example(place, [text], label, classes) for place, (short, label, text) in rows if short == first]
        for first, split in _PROBING_SPLITS.items()
    }


def _trec(path: Path) -> list[Example]:
    examples = []
    for place, cells in tab_separated_rows(path):
        category, question = [*" ".join(cells).split(maxsplit=1), ""][:2]  # `NUM:dist How far is it ...`
        examples.append(_example(place, [question], category.partition(":")[0], _TREC_CLASSES))
    return examples


def _example(place: str, cells: Sequence[str], label: str, classes: tuple[str, ...]) -> Example:
    """Return the example of a line, checked."""
    sentences = tuple(map(_words, cells))
    if label.strip() not in classes or not all(sentences):
        raise UserError(f"{place}: it should have a sentence, and one of the labels {', '.join(classes[:9])}")
    return Example(sentences, classes.index(label.strip()))


def _words(text: str) -> str:
    """Return words with single spaces between them, as SentEval does."""
    return " ".join(text.split())
