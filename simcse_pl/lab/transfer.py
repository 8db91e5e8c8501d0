"""The seven transfer and ten probing tasks of SentEval (Conneau and Kiela 2018; Appendix E of the paper).

Logistic regression classifies the fixed embeddings. Its regularization is chosen by cross-validation or on a dev split.
SentEval has two classifiers, scikit-learn's and one in PyTorch. SimCSE's evaluation script uses the latter: with the
settings FULL for the test sets of Table E.1, and with FAST for the development sets of Table D.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from simcse_pl.evaluation.results import PROBING_TASKS, SCIKIT_LEARN, TransferScores
from simcse_pl.evaluation.sts import tab_separated_rows, text_lines
from simcse_pl.lab import logistic_regression, pytorch_classifier
from simcse_pl.lab.pytorch_classifier import FAST, FULL, WEIGHT_DECAYS, Problem
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import Encode, encode_columns

_PROBING_FILES = (  # in the order of the tasks
    *("sentence_length", "word_content", "tree_depth", "top_constituents", "bigram_shift"),
    *("past_present", "subj_number", "obj_number", "odd_man_out", "coordination_inversion"),
)
_PROBING_SPLITS = {"tr": "train", "va": "dev", "te": "test"}
# Files of one class each, label 1 first.
_ONE_CLASS_A_FILE = {
    "MR": ("rt-polarity.pos", "rt-polarity.neg"),
    "CR": ("custrev.pos", "custrev.neg"),
    "SUBJ": ("subj.objective", "subj.subjective"),
    "MPQA": ("mpqa.pos", "mpqa.neg"),
}
_TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
SEED = 1111  # the seed and both grids are SentEval's
FOLDS = 10
C_GRID = tuple(2.0**power for power in range(-2, 4))
C_GRID_WITH_TEST = tuple(2.0**power for power in range(-1, 6))
_TRAININGS = {"pytorch": FULL, "pytorch_fast": FAST}
_PROTOCOLS = {
    ("all",): ("{}-fold nested cross-validation", C_GRID),
    ("train", "test"): ("{}-fold cross-validation", C_GRID_WITH_TEST),
    ("train", "dev", "test"): ("dev split", C_GRID),
}
Rows = np.ndarray  # positions of examples
Fit = tuple[Rows, Rows]  # the rows to fit on, and the rows to score


@dataclass(frozen=True)
class Example:
    """A sentence, or two of a paraphrase task, and the number of its class."""

    sentences: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class TransferTask:
    """The examples of a task by split: `all`; `train` and `test`; or `train`, `dev` and `test`.

    They are in SentEval's order, by number of words and then by label, because its folds depend on the order. The
    classifier `scikit-learn` is solved by a faster method; `pytorch` and `pytorch_fast` are trained as SentEval does
    with the settings of SimCSE's evaluation script for test and for development sets.
    """

    name: str
    splits: dict[str, list[Example]]
    classifier: str = SCIKIT_LEARN

    def __call__(self, encode: Encode, device: str | torch.device = "cpu") -> TransferScores:
        """Measure the task by SentEval's protocol for its splits.

        - `all`: nested cross-validation, folds within folds (MR, CR, SUBJ, MPQA);
        - `train` and `test`: cross-validation on `train` (TREC, MRPC);
        - `train`, `dev` and `test`: the best regularization on `dev` (SST).

        The folds are SentEval's (scikit-learn's, seed 1111), 10 or, for `pytorch_fast`, 5. The features of a pair are
        |u - v| and u * v. `encode` is called once, with the distinct sentences.
        """
        training = _TRAININGS.get(self.classifier)
        folds = training.folds if training else FOLDS
        examples = [example for split in self.splits.values() for example in split]
        labels = np.array([example.label for example in examples])
        ends = np.cumsum([len(split) for split in self.splits.values()])
        rows = dict(zip(self.splits, np.split(np.arange(len(labels)), ends[:-1]), strict=True))
        finals = _folds(rows["all"], labels, folds) if "all" in rows else [(rows["train"], rows["test"])]
        dev = rows.get("dev")
        choices: list[list[Fit]] = [
            _folds(train, labels, folds) if dev is None else [(train, dev)] for train, _ in finals
        ]
        protocol, grid = _PROTOCOLS[tuple(rows)]
        fit_predict = logistic_regression.fit_predict
        if training:
            fit_predict, grid = partial(pytorch_classifier.fit_predict, training=training), WEIGHT_DECAYS
        columns = encode_columns(encode, *zip(*(example.sentences for example in examples), strict=True))
        features, *others = (column.to(device) for column in columns)
        if others:  # the tasks have pairs
            features = torch.cat([(features - others[0]).abs(), features * others[0]], dim=1)
        targets = torch.from_numpy(labels).to(device)

        # All fits of all rounds with the whole grid are one batched problem; then one final fit per round.
        # Early stopping of the PyTorch classifier uses the rows that are scored; in the final fit, those of `dev`.
        fits = [fit for choice in choices for fit in choice]
        predicted = fit_predict(features, targets, [Problem(train, test, grid) for train, test in fits])
        accuracy = _accuracies(predicted, labels, fits)
        means = accuracy.reshape(len(finals), -1, len(grid)).mean(axis=1).round(4)
        best = [[grid[i]] for i in means.argmax(axis=1)]
        problems = [Problem(train, dev, chosen) for (train, _), chosen in zip(finals, best, strict=True)]
        predicted = fit_predict(features, targets, problems)
        test = finals[0][1]
        return TransferScores(
            task=self.name,
            protocol=protocol.format(folds),
            rows=sum(len(test) for _, test in finals),
            accuracy=float(_accuracies(predicted, labels, finals).mean()),
            f1=float(f1_score(labels[test], predicted[0, 0, test])) if others else None,
            dev_accuracy=float(means.max(axis=1).mean()),
            classifier=self.classifier,
        )


def load_transfer_task(senteval_dir: str | Path, name: str, classifier: str = SCIKIT_LEARN) -> TransferTask:
    """Load one of `TRANSFER_TASKS` or `PROBING_TASKS` from a SentEval bundle (its data/downstream).

    Args:
        senteval_dir: contains MR, CR, SUBJ, MPQA, SST/binary, TREC and MRPC, or some of them. The probing tasks are
            in the folder `probing` beside it.
        name: the task.
        classifier: see TransferTask.
    """
    folder = Path(senteval_dir) / name / ("binary" if name == "SST" else "")
    if name in PROBING_TASKS:
        folder = Path(senteval_dir).absolute().parent / "probing"
    splits: dict[str, list[Example]] = {}
    match name:
        case "SST":
            for split in ("train", "dev", "test"):
                rows = tab_separated_rows(folder / f"sentiment-{split}")
                splits[split] = [_example(location, cells[:1], cells[-1], ("0", "1")) for location, cells in rows]
        case "TREC":
            splits = {"train": _trec(folder / "train_5500.label"), "test": _trec(folder / "TREC_10.label")}
        case "MRPC":
            for split in ("train", "test"):
                rows = tab_separated_rows(folder / f"msr_paraphrase_{split}.txt", header=True)
                columns = [(location, cells[0], [*cells[3:5], "", ""][:2]) for location, cells in rows]
                splits[split] = [_example(location, texts, label, ("0", "1")) for location, label, texts in columns]
        case _ if name in PROBING_TASKS:
            splits = _probing(folder / f"{_PROBING_FILES[PROBING_TASKS.index(name)]}.txt")
        case _:
            # A blank line is an empty sentence (CR has some), as in SentEval.
            files = zip((1, 0), _ONE_CLASS_A_FILE[name], strict=True)
            splits["all"] = [
                Example((_words(line),), label) for label, file in files for line in text_lines(folder / file)
            ]
    for examples in splits.values():
        examples.sort(key=lambda example: (*(len(text.split()) for text in example.sentences), example.label))
    return TransferTask(name, splits, classifier)


def _probing(path: Path) -> dict[str, list[Example]]:
    rows = [(location, [*cells, "", ""][:3]) for location, cells in tab_separated_rows(path)]  # split, class, sentence
    classes = tuple(sorted({label.strip() for _, (short, label, _) in rows if short == "tr"}))
    return {
        split: [_example(location, [text], label, classes) for location, (short, label, text) in rows if short == first]
        for first, split in _PROBING_SPLITS.items()
    }


def _trec(path: Path) -> list[Example]:
    examples = []
    for location, cells in tab_separated_rows(path):
        category, question = [*" ".join(cells).split(maxsplit=1), ""][:2]  # `NUM:dist How far is it ...`
        examples.append(_example(location, [question], category.partition(":")[0], _TREC_CLASSES))
    return examples


def _example(location: str, cells: Sequence[str], label: str, classes: tuple[str, ...]) -> Example:
    """Return the example of a line, checked."""
    sentences = tuple(map(_words, cells))
    if label.strip() not in classes or not all(sentences):
        raise UserError(f"{location}: it should have a sentence, and one of the labels {', '.join(classes[:9])}")
    return Example(sentences, classes.index(label.strip()))


def _words(text: str) -> str:
    """Return words with single spaces between them, as SentEval does."""
    return " ".join(text.split())


def _folds(rows: Rows, labels: np.ndarray, count: int) -> list[Fit]:
    splits = StratifiedKFold(n_splits=count, shuffle=True, random_state=SEED).split(rows, labels[rows])
    return [(rows[train], rows[test]) for train, test in splits]


def _accuracies(predicted: np.ndarray, labels: np.ndarray, fits: Sequence[Fit]) -> np.ndarray:
    """Return [fits, grid]."""
    scored = zip(predicted, (test for _, test in fits), strict=True)
    return np.array([(classes[:, rows] == labels[rows]).mean(axis=1) for classes, rows in scored])
