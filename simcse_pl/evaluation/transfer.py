"""The transfer protocol of SentEval (Conneau and Kiela 2018; Appendix E of the paper).

The embeddings are fixed, and logistic regression classifies them. Its regularization is chosen by cross-validation or
on a dev split. SentEval has two classifiers, scikit-learn's and one in PyTorch; SimCSE's evaluation script uses the
latter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from simcse_pl.data.senteval.transfer_sets import TransferTask
from simcse_pl.evaluation import logistic_regression, pytorch_classifier
from simcse_pl.evaluation.encoding import encode_columns, pair_features
from simcse_pl.evaluation.pytorch_classifier import WEIGHT_DECAYS, Problem
from simcse_pl.models.protocols import Encode
from simcse_pl.results.evaluation_results import TransferScores
from simcse_pl.utils.errors import UserError

SEED = 1111  # the seed and both grids are SentEval's
FOLDS = 10
C_GRID = tuple(2.0**power for power in range(-2, 4))
C_GRID_WITH_TEST = tuple(2.0**power for power in range(-1, 6))
CLASSIFIERS = (SCIKIT_LEARN, PYTORCH) = ("scikit-learn", "pytorch")

Rows = np.ndarray  # positions of examples
Fit = tuple[Rows, Rows]  # the rows to fit on, and the rows to score


@dataclass(frozen=True)
class _Round:
    """One choice of the regularization, by mean accuracy over the fits of `choice`, and the fit that is then scored.

    The PyTorch classifier stops early by the rows that are scored, and in the final fit by those of `dev`.
    """

    choice: list[Fit]
    final: Fit
    dev: Rows | None = None


def evaluate_transfer(
    encode: Encode, task: TransferTask, device: str | torch.device = "cpu", classifier: str = SCIKIT_LEARN
) -> TransferScores:
    """Measure a task by SentEval's protocol for its splits.

    - `all`: nested cross-validation, 10 folds within 10 folds (MR, CR, SUBJ, MPQA);
    - `train` and `test`: 10-fold cross-validation on `train` (TREC, MRPC);
    - `train`, `dev` and `test`: the best regularization on `dev` (SST).

    The folds are SentEval's (scikit-learn's, seed 1111). The features of a pair are |u - v| and u * v.

    Args:
        encode: function from sentences to vectors [n, dim]. It is called once, with the distinct sentences.
        task: the labelled examples.
        device: device of the classifiers.
        classifier: `scikit-learn`, solved by a faster method; or `pytorch`, trained as SentEval trains it with the
            settings of SimCSE's evaluation script.

    Raises:
        UserError: a class has fewer examples than there are folds, or the training examples have only one class.
    """
    examples = [example for split in task.splits.values() for example in split]
    labels = np.array([example.label for example in examples])
    train = next(iter(task.splits.values()))
    if len({example.label for example in train}) < 2:
        raise UserError(f"{task.name}: all training examples have the same class")
    protocol, grid, rounds = _protocol(task, labels)
    if classifier == PYTORCH:
        grid = WEIGHT_DECAYS
    columns = encode_columns(encode, *zip(*(example.sentences for example in examples), strict=True))
    is_pair = len(columns) > 1
    features = (pair_features(*columns) if is_pair else columns[0]).to(device)
    targets = torch.from_numpy(labels).to(device)
    fit_predict = pytorch_classifier.fit_predict if classifier == PYTORCH else _logistic_regression

    # All fits of all rounds with the whole grid are one batched problem; then one final fit per round.
    fits = [fit for round_ in rounds for fit in round_.choice]
    predicted = fit_predict(features, targets, [Problem(*fit, grid) for fit in fits])
    accuracy = _accuracies(predicted, labels, [test for _, test in fits])
    means = accuracy.reshape(len(rounds), -1, len(grid)).mean(axis=1).round(4)
    final = [
        Problem(round_.final[0], round_.dev, [grid[best]])
        for best, round_ in zip(means.argmax(axis=1), rounds, strict=True)
    ]
    predicted = fit_predict(features, targets, final)
    tests = [round_.final[1] for round_ in rounds]
    return TransferScores(
        task=task.name,
        protocol=protocol,
        rows=sum(map(len, tests)),
        accuracy=float(_accuracies(predicted, labels, tests).mean()),
        f1=float(f1_score(labels[tests[0]], predicted[0, 0, tests[0]])) if is_pair else None,
        dev_accuracy=float(means.max(axis=1).mean()),
        classifier=classifier,
    )


def _protocol(task: TransferTask, labels: np.ndarray) -> tuple[str, tuple[float, ...], list[_Round]]:
    """Return the name of the protocol, the values of C to choose from, and the rounds."""
    ends = np.cumsum([len(examples) for examples in task.splits.values()])
    rows = dict(zip(task.splits, np.split(np.arange(len(labels)), ends[:-1]), strict=True))
    match tuple(rows):
        case ("all",):
            outer = _folds(rows["all"], labels, task.name)
            rounds = [_Round(_folds(fit[0], labels, task.name), fit) for fit in outer]
            return f"{FOLDS}-fold nested cross-validation", C_GRID, rounds
        case ("train", "test"):
            rounds = [_Round(_folds(rows["train"], labels, task.name), (rows["train"], rows["test"]))]
            return f"{FOLDS}-fold cross-validation", C_GRID_WITH_TEST, rounds
        case _:
            rounds = [_Round([(rows["train"], rows["dev"])], (rows["train"], rows["test"]), rows["dev"])]
            return "dev split", C_GRID, rounds


def _folds(rows: Rows, labels: np.ndarray, task: str) -> list[Fit]:
    counts = np.unique_counts(labels[rows]).counts
    if counts.min() < FOLDS:
        raise UserError(f"{task}: {FOLDS} folds need at least {FOLDS} examples of each class")
    splits = StratifiedKFold(n_splits=FOLDS, shuffle=True, random_state=SEED).split(rows, labels[rows])
    return [(rows[train], rows[test]) for train, test in splits]


def _logistic_regression(features: Tensor, targets: Tensor, problems: Sequence[Problem]) -> np.ndarray:
    """Return the classes that scikit-learn's classifier predicts, [problems, grid, n]."""
    fit_rows = torch.zeros(len(problems), len(features), dtype=torch.bool)
    for i, problem in enumerate(problems):
        fit_rows[i, torch.from_numpy(problem.rows)] = True
    Cs = torch.tensor([problem.grid for problem in problems])
    fit_rows = fit_rows.to(features.device).repeat_interleave(Cs.shape[1], dim=0)
    predicted = logistic_regression.fit_predict(features, targets, Cs.flatten().to(features), fit_rows)
    return predicted.view(*Cs.shape, -1).cpu().numpy()


def _accuracies(predicted: np.ndarray, labels: np.ndarray, scored: Sequence[Rows]) -> np.ndarray:
    """Return [problems, grid]."""
    return np.array([(own[:, rows] == labels[rows]).mean(axis=1) for own, rows in zip(predicted, scored, strict=True)])
