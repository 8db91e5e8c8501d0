"""Methods for pairs with scores, by the authors' losses of vectors."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Optional

import torch
from torch import Tensor, nn
from transformers import BertModel

from benchmarks.fidelity.common import PAIRS, Record, Repository, official_model, padded, tokenizer

SCORES = (0.0, 1.0, 1.0, 0.0)


class Encoder(nn.Module):
    """BERT, whose state of [CLS] is the vector of a sentence."""

    def __init__(self, config: object) -> None:
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the vectors of both sentences of each pair in turn, [2 n, dim]."""
        flat: dict[str, Tensor] = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        return self.bert(**flat).last_hidden_state[:, 0]


def records(folders: Path) -> Iterator[Record]:
    """Yield AnglE (Li and Li 2024) and CoSENT (Su 2022)."""
    angle = Repository(folders, "SeanLee97/AnglE", "5155458", "angle_emb")
    losses = angle.load("loss.py")
    weights = {"cosine_w": 0.0, "ibn_w": 30.0, "angle_w": 1.0, "dataset_format": "A"}
    released = {name: getattr(losses, name) for name in ("cosine_loss", "in_batch_negative_loss", "angle_loss")}
    loss = angle.nested("angle.py", "AngleLoss", torch=torch, Optional=Optional, **released)(**weights)
    yield recorded(
        Record(
            "angle",
            angle,
            ["method=angle", "data.max_length=32"],
            {},
            PAIRS,
            scores=SCORES,
            script="../examples/NLI/README.md",
        ),
        loss,
    )
    cosent = Repository(folders, "bojone/CoSENT", "124c368")
    backend = SimpleNamespace(
        cast=lambda x, dtype: x.to(dtype), floatx=lambda: torch.float64, sum=torch.sum, reshape=torch.reshape,
        l2_normalize=lambda x, axis: nn.functional.normalize(x, dim=axis),
        concatenate=lambda parts, axis: torch.cat([torch.as_tensor(part).double() for part in parts], dim=axis),
        logsumexp=lambda x: torch.logsumexp(x, dim=0),
    )  # fmt: skip
    repaired = "the functions of Keras are those of PyTorch"
    record = Record("cosent", cosent, ["method=cosent", "data.max_length=32"], {}, PAIRS, repaired, scores=SCORES)
    yield recorded(record, cosent.nested("cosent.py", "cosent_loss", K=backend))


def recorded(record: Record, loss: Callable[[Tensor, Tensor], Tensor]) -> Record:
    """Run a loss of scores and vectors, and return the record."""
    inputs = padded([[tokenizer()(sentence).input_ids for sentence in pair] for pair in PAIRS])
    scores = torch.tensor(SCORES, dtype=torch.float64).repeat_interleave(2)[:, None]
    return record.run(official_model(Encoder), inputs, lambda model: loss(scores, model(inputs)))
