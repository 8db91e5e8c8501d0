"""SentEval's regressor for STS-B and SICK-R, which the paper does not use (Appendix B)."""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.data.evaluation import encode_columns
from simcse_pl.data.senteval.sts_sets import StsTask
from simcse_pl.evaluation.encoding import pair_features
from simcse_pl.evaluation.sts import correlation
from simcse_pl.models.protocols import Encode
from simcse_pl.results.evaluation_results import Correlation

CLASSES = 5
_BATCH_SIZE = 64
_EPOCHS_PER_ROUND = 50
_ROUNDS = 21  # SentEval begins rounds up to and including epoch 1000
_PATIENCE = 4  # rounds without improvement on dev, not necessarily consecutive


def evaluate_with_regressor(encode: Encode, splits: dict[str, StsTask]) -> Correlation:
    """Train a regressor on `train`, with early stopping on `dev`, and return the correlations of its scores on `test`.

    The regressor is a softmax over the scores 1 to 5 with the features |u - v| and u * v. As in SentEval, Adam
    minimizes the squared error of the class probabilities (Tai, Socher and Manning 2015), and Pearson's correlation on
    dev stops training early. `encode` is called once, with the distinct sentences.
    """
    sides = [[getattr(pair, side) for pair in task.pairs] for task in splits.values() for side in ("first", "second")]
    vectors = [column.float() for column in encode_columns(encode, *sides)]
    x = dict(zip(splits, map(pair_features, vectors[::2], vectors[1::2]), strict=True))
    human = {split: np.array([pair.score for pair in task.pairs]) for split, task in splits.items()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1111)  # SentEval's seed
        model = _train(x["train"], _class_weights(human["train"]), x["dev"], human["dev"])
    return correlation(_scores(model, x["test"]), human["test"])


def _class_weights(scores: np.ndarray) -> Tensor:
    """Return target probabilities [n, 5]: a score of 3.2 is 0.8 of class 3 and 0.2 of class 4.

    There is no class 0, so the probabilities of a score below 1 sum to less than 1, as in SentEval.
    """
    distance = np.abs(scores[:, None] - np.arange(1, CLASSES + 1))
    return torch.from_numpy(np.clip(1 - distance, 0, None)).float()


def _train(x: Tensor, targets: Tensor, dev_x: Tensor, dev_human: np.ndarray) -> nn.Linear:
    model = nn.Linear(x.shape[1], CLASSES)
    optimizer = torch.optim.Adam(model.parameters())
    best, best_score, misses = model, -1.0, 0
    for _ in range(_ROUNDS):
        for _ in range(_EPOCHS_PER_ROUND):
            for rows in torch.randperm(len(x)).split(_BATCH_SIZE):
                loss = F.mse_loss(model(x[rows]).softmax(dim=-1), targets[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        score = correlation(_scores(model, dev_x), dev_human).pearson
        if score > best_score:
            best, best_score = copy.deepcopy(model), score
        else:
            misses += 1
        if misses >= _PATIENCE:
            break
    return best


@torch.no_grad()
def _scores(model: nn.Linear, x: Tensor) -> np.ndarray:
    """Return the expected scores, in [1, 5]."""
    scores: np.ndarray = (model(x).softmax(dim=-1) @ torch.arange(1.0, CLASSES + 1)).double().numpy()
    return scores
