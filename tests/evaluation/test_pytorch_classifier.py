"""SentEval's PyTorch classifier against one fit at a time with torch.nn and torch.optim."""

import numpy as np
import pytest
import torch

from simcse_pl.data.senteval.transfer_sets import TransferTask
from simcse_pl.evaluation.transfer import evaluate_transfer
from tests.evaluation.test_transfer import encode, examples, features, folds, labels, pairs

DECAYS = [1e-5, 1e-4, 1e-3, 1e-2]


class Fitted:
    """One fitted classifier; without `dev`, a random 5 % of the rows stop training."""

    def __init__(self, x, y, decay, dev=None):
        random = np.random.RandomState(1111)
        torch.manual_seed(1111)
        self.layer = torch.nn.Linear(x.shape[1], int(y.max()) + 1)
        adam = torch.optim.Adam(self.layer.parameters(), weight_decay=decay)
        if dev is None:
            order = random.permutation(len(x))
            held = len(x) // 20
            dev, x, y = (x[order[:held]], y[order[:held]]), x[order[held:]], y[order[held:]]
        best, missed, epochs = -1, 0, 0
        while epochs <= 200 and missed <= 5:
            for _ in range(4):
                for batch in np.array_split(random.permutation(len(x)), range(64, len(x), 64)):
                    logits = self.layer(torch.tensor(x[batch]).float())
                    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(y[batch]))
                    adam.zero_grad()
                    loss.backward()
                    adam.step()
            epochs += 4
            if (accuracy := self.score(*dev)) > best:
                best, weights = accuracy, {name: own.clone() for name, own in self.layer.state_dict().items()}
            else:
                missed += 1
        self.layer.load_state_dict(weights)

    def score(self, x, y):
        return float((self.layer(torch.tensor(x).float()).argmax(dim=1).numpy() == y).mean())


def best_decay(fits):
    """Return the decay with the best mean score over the fits, and that score in percent."""
    scores = [round(100 * np.mean([fit(decay) for fit in fits]), 2) for decay in DECAYS]
    return DECAYS[int(np.argmax(scores))], max(scores)


def measured(splits):
    result = evaluate_transfer(encode, TransferTask("MR", splits), classifier="pytorch")
    assert result.classifier == "pytorch"
    return result


@pytest.mark.parametrize(("train", "test"), [(examples(92, 3), examples(900, 3, 500)), (pairs(80), pairs(900, 500))])
def test_cross_validation_on_train(train, test):
    x, y = features(train), labels(train)
    splits = [(x[f], y[f], x[h], y[h]) for f, h in folds().split(x, y)]
    assert len({len(split[0]) for split in splits}) > 1 or len(y) == 80
    fits = [lambda decay, own=own: Fitted(*own[:2], decay, own[2:]).score(*own[2:]) for own in splits]
    decay, dev = best_decay(fits)
    result = measured({"train": train, "test": test})
    assert result.dev_accuracy == pytest.approx(dev / 100)
    assert result.accuracy == pytest.approx(Fitted(x, y, decay).score(features(test), labels(test)))


def test_dev_split():
    train, dev, test = ((features(rows), labels(rows)) for rows in SPLITS)
    decay, score = best_decay([lambda decay: Fitted(*train, decay, dev).score(*dev)])
    result = measured(dict(zip(("train", "dev", "test"), SPLITS, strict=True)))
    assert result.dev_accuracy == pytest.approx(score / 100)
    assert result.accuracy == pytest.approx(Fitted(*train, decay, dev).score(*test))


SPLITS = examples(200, 2), examples(100, 2, 300), examples(150, 2, 500)
