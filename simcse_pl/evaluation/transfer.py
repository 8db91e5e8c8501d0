"""The transfer protocol of SentEval (Conneau and Kiela 2018; Appendix E of the paper).

Logistic regression on frozen embeddings. The strength of its penalty is chosen by cross-validation or on a dev split.
SentEval has two classifiers, one of scikit-learn and one of PyTorch; SimCSE's evaluation script uses the latter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from simcse_pl.data.senteval.transfer_sets import Example, TransferTask
from simcse_pl.evaluation import logistic_regression, pytorch_classifier
from simcse_pl.evaluation.encoding import encode_columns, pair_features
from simcse_pl.evaluation.pytorch_classifier import Problem
from simcse_pl.models.protocols import Encode
from simcse_pl.utils.errors import UserError

SEED = 1111  # this and the grids of C are SentEval's
FOLDS = 10
STRENGTHS = tuple(2.0**power for power in range(-2, 4))
STRENGTHS_WITH_TEST = tuple(2.0**power for power in range(-1, 6))
CLASSIFIERS = (SCIKIT_LEARN, PYTORCH) = ("scikit-learn", "pytorch")

Rows = np.ndarray  # positions of examples
Fit = tuple[Rows, Rows]  # the rows to fit on, and the rows to score


@dataclass(frozen=True)
class TransferResult:
    """A task's score.

    Args:
        task: its name.
        protocol: how the score comes about.
        rows: how many examples are scored.
        accuracy: on them, in [0, 1].
        f1: of class 1, in [0, 1], for tasks with pairs; None for others.
        dev_accuracy: of the strength that was chosen, on what it was chosen by.
        classifier: one of `CLASSIFIERS`.
    """

    task: str
    protocol: str
    rows: int
    accuracy: float
    f1: float | None
    dev_accuracy: float
    classifier: str


@dataclass(frozen=True)
class _Round:
    """A strength is chosen by its mean accuracy over some fits, and then measured by one more.

    A classifier that is stopped early is stopped by the rows that it scores, in the final fit by those of `dev`.
    """

    choice: list[Fit]
    final: Fit
    dev: Rows | None = None


def evaluate_transfer(
    encode: Encode, task: TransferTask, device: str | torch.device = "cpu", classifier: str = SCIKIT_LEARN
) -> TransferResult:
    """A task by SentEval's protocol for the splits that it has.

    - `all`: nested cross-validation, 10 folds within 10 folds (MR, CR, SUBJ, MPQA);
    - `train` and `test`: 10-fold cross-validation on `train` (TREC, MRPC);
    - `train`, `dev` and `test`: the strength that is best on `dev` (SST).

    The folds are SentEval's (scikit-learn's, seed 1111); a pair's features are |u - v| and u * v.

    Args:
        encode: sentences to vectors [n, dim]; it is called once, with each distinct sentence once.
        task: what to measure on.
        device: where the classifiers are fitted.
        classifier: `scikit-learn`, the same optimum found faster; or `pytorch`, step by step as SentEval trains it
            with the settings of SimCSE's evaluation script. Its strengths are weight decays.

    Raises:
        UserError: a class with fewer examples than there are folds, or one class only to learn from.
    """
    examples = [example for split in task.splits.values() for example in split]
    labels = np.array([example.label for example in examples])
    fitted = next(iter(task.splits.values()))
    if len({example.label for example in fitted}) < 2:
        raise UserError(f"{task.name}: all examples to learn from have one class: there is nothing to classify")
    protocol, strengths, rounds = _protocol(task, labels)
    if classifier == PYTORCH:
        strengths = pytorch_classifier.DECAYS
    features = _features(encode, examples).to(device)
    targets = torch.from_numpy(labels).to(device)

    # Every strength with every fit of every round, in one batched problem; then one more fit a round.
    fits = [Problem(train, test, strengths) for round_ in rounds for train, test in round_.choice]
    scored = [test for round_ in rounds for _, test in round_.choice]
    predict = _PREDICT[classifier]
    accuracy = _accuracies(predict(features, targets, fits), labels, scored)
    means = accuracy.reshape(len(rounds), -1, len(strengths)).mean(axis=1).round(4)
    chosen = [
        Problem(round_.final[0], round_.dev, [strengths[best]])
        for best, round_ in zip(means.argmax(axis=1), rounds, strict=True)
    ]
    predicted = predict(features, targets, chosen)
    scored = [round_.final[1] for round_ in rounds]
    f1 = None
    if len(examples[0].sentences) > 1:
        f1 = float(f1_score(labels[scored[0]], predicted[0, 0, scored[0]]))
    return TransferResult(
        task=task.name,
        protocol=protocol,
        rows=sum(map(len, scored)),
        accuracy=float(_accuracies(predicted, labels, scored).mean()),
        f1=f1,
        dev_accuracy=float(means.max(axis=1).mean()),
        classifier=classifier,
    )


def _protocol(task: TransferTask, labels: np.ndarray) -> tuple[str, tuple[float, ...], list[_Round]]:
    """Its name, the strengths to choose among, and its rounds."""
    rows, start = {}, 0
    for split, examples in task.splits.items():
        rows[split] = np.arange(start, start + len(examples))
        start += len(examples)
    match tuple(rows):
        case ("all",):
            outer = _folds(rows["all"], labels, task.name)
            rounds = [_Round(_folds(train, labels, task.name), (train, test)) for train, test in outer]
            return f"{FOLDS}-fold nested cross-validation", STRENGTHS, rounds
        case ("train", "test"):
            choice = _folds(rows["train"], labels, task.name)
            return (
                f"{FOLDS}-fold cross-validation",
                STRENGTHS_WITH_TEST,
                [_Round(choice, (rows["train"], rows["test"]))],
            )
        case _:
            choice = [(rows["train"], rows["dev"])]
            return "dev split", STRENGTHS, [_Round(choice, (rows["train"], rows["test"]), rows["dev"])]


def _folds(rows: Rows, labels: np.ndarray, task: str) -> list[Fit]:
    counts = np.unique_counts(labels[rows]).counts
    if counts.min() < FOLDS:
        raise UserError(f"{task}: {FOLDS} folds need classes of {FOLDS} examples or more each")
    splits = StratifiedKFold(n_splits=FOLDS, shuffle=True, random_state=SEED).split(rows, labels[rows])
    return [(rows[train], rows[test]) for train, test in splits]


def _features(encode: Encode, examples: Sequence[Example]) -> Tensor:
    """[n, dim], or [n, 2 dim] of pairs."""
    columns = encode_columns(encode, *zip(*(example.sentences for example in examples), strict=True))
    return columns[0] if len(columns) == 1 else pair_features(*columns)


def _logistic_regression(features: Tensor, targets: Tensor, problems: Sequence[Problem]) -> np.ndarray:
    """The classes that scikit-learn's classifier predicts, [problems, strengths, n]."""
    fit_rows = torch.zeros(len(problems), len(features), dtype=torch.bool)
    for i, problem in enumerate(problems):
        fit_rows[i, torch.from_numpy(problem.rows)] = True
    each = len(problems[0].strengths)
    strengths = torch.tensor([problem.strengths for problem in problems]).flatten().to(features)
    fit_rows = fit_rows.to(features.device).repeat_interleave(each, dim=0)
    predicted = logistic_regression.fit_predict(features, targets, strengths, fit_rows)
    return predicted.view(len(problems), each, -1).cpu().numpy()


_PREDICT = {SCIKIT_LEARN: _logistic_regression, PYTORCH: pytorch_classifier.fit_predict}


def _accuracies(predicted: np.ndarray, labels: np.ndarray, scored: Sequence[Rows]) -> np.ndarray:
    """[problems, strengths]."""
    return np.array([(own[:, rows] == labels[rows]).mean(axis=1) for own, rows in zip(predicted, scored, strict=True)])
