"""The transfer protocol of SentEval (Conneau and Kiela 2018; Appendix E of the paper).

Logistic regression classifies the fixed embeddings. Its regularization is chosen by cross-validation or on a dev split.
SentEval has two classifiers, scikit-learn's and one in PyTorch. SimCSE's evaluation script uses the latter: with the
settings FULL for the test sets of Table E.1, and with FAST for the development sets of Table D.2.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from simcse_pl.data.evaluator import encode_columns
from simcse_pl.data.senteval.transfer_sets import TransferTask
from simcse_pl.evaluation import logistic_regression, pytorch_classifier
from simcse_pl.evaluation.pytorch_classifier import FAST, FULL, WEIGHT_DECAYS, Problem
from simcse_pl.results.evaluation_results import TransferScores
from simcse_pl.utils.tensors import Encode

SEED = 1111  # the seed and both grids are SentEval's
FOLDS = 10
C_GRID = tuple(2.0**power for power in range(-2, 4))
C_GRID_WITH_TEST = tuple(2.0**power for power in range(-1, 6))
SCIKIT_LEARN = "scikit-learn"
_TRAININGS = {"pytorch": FULL, "pytorch_fast": FAST}
CLASSIFIERS = (SCIKIT_LEARN, *_TRAININGS)

_PROTOCOLS = {
    ("all",): ("{}-fold nested cross-validation", C_GRID),
    ("train", "test"): ("{}-fold cross-validation", C_GRID_WITH_TEST),
    ("train", "dev", "test"): ("dev split", C_GRID),
}
Rows = np.ndarray  # positions of examples
Fit = tuple[Rows, Rows]  # the rows to fit on, and the rows to score


def evaluate_transfer(
    encode: Encode, task: TransferTask, device: str | torch.device = "cpu", classifier: str = SCIKIT_LEARN
) -> TransferScores:
    """Measure a task by SentEval's protocol for its splits.

    - `all`: nested cross-validation, folds within folds (MR, CR, SUBJ, MPQA);
    - `train` and `test`: cross-validation on `train` (TREC, MRPC);
    - `train`, `dev` and `test`: the best regularization on `dev` (SST).

    The folds are SentEval's (scikit-learn's, seed 1111), 10 or, for `pytorch_fast`, 5. The features of a pair are
    |u - v| and u * v.

    Args:
        encode: function from sentences to vectors [n, dim]. It is called once, with the distinct sentences.
        device: device of the classifiers.
        classifier: `scikit-learn`, solved by a faster method; `pytorch` or `pytorch_fast`, trained as SentEval trains
            it with the settings of SimCSE's evaluation script for test and for development sets.
    """
    training = _TRAININGS.get(classifier)
    folds = training.folds if training else FOLDS
    examples = [example for split in task.splits.values() for example in split]
    labels = np.array([example.label for example in examples])
    ends = np.cumsum([len(split) for split in task.splits.values()])
    rows = dict(zip(task.splits, np.split(np.arange(len(labels)), ends[:-1]), strict=True))
    finals = _folds(rows["all"], labels, folds) if "all" in rows else [(rows["train"], rows["test"])]
    dev = rows.get("dev")
    choices: list[list[Fit]] = [_folds(train, labels, folds) if dev is None else [(train, dev)] for train, _ in finals]
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
        task=task.name,
        protocol=protocol.format(folds),
        rows=sum(len(test) for _, test in finals),
        accuracy=float(_accuracies(predicted, labels, finals).mean()),
        f1=float(f1_score(labels[test], predicted[0, 0, test])) if others else None,
        dev_accuracy=float(means.max(axis=1).mean()),
        classifier=classifier,
    )


def _folds(rows: Rows, labels: np.ndarray, count: int) -> list[Fit]:
    splits = StratifiedKFold(n_splits=count, shuffle=True, random_state=SEED).split(rows, labels[rows])
    return [(rows[train], rows[test]) for train, test in splits]


def _accuracies(predicted: np.ndarray, labels: np.ndarray, fits: Sequence[Fit]) -> np.ndarray:
    """Return [fits, grid]."""
    scored = zip(predicted, (test for _, test in fits), strict=True)
    return np.array([(classes[:, rows] == labels[rows]).mean(axis=1) for classes, rows in scored])
