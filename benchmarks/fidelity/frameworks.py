"""Losses without their frameworks: the functions of TensorFlow, Keras and AllenNLP are those of PyTorch."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn
from transformers import BertForMaskedLM, BertModel

from benchmarks.fidelity.common import PAIRS, RECORDS, TRIPLETS, Record, Repository, official_model, padded, tokenizer
from benchmarks.fidelity.forks import SINGLES, pairs, with_masked

SCORES = (0.0, 1.0, 1.0, 0.0)


def records(folders: Path) -> Iterator[Record]:
    """Yield a record of each method."""
    yield from scored(folders)
    yield contrastive_tension(folders)
    yield declutr(folders)


class Encoder(nn.Module):
    """BERT, whose state of [CLS] is the vector of a sentence."""

    def __init__(self, config: object) -> None:
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the vectors of both sentences of each pair in turn, [2 n, dim]."""
        flat: dict[str, Tensor] = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        return self.bert(**flat).last_hidden_state[:, 0]


def scored(folders: Path) -> Iterator[Record]:
    """AnglE (Li and Li 2024) and CoSENT (Su 2022), whose losses take scores and vectors."""
    angle = Repository(folders, "SeanLee97/AnglE", "5155458", "angle_emb")
    losses = angle.load("loss.py")
    weights = {"cosine_w": 0.0, "ibn_w": 30.0, "angle_w": 1.0, "dataset_format": "A"}
    released = {name: getattr(losses, name) for name in ("cosine_loss", "in_batch_negative_loss", "angle_loss")}
    loss = angle.nested("angle.py", "AngleLoss", torch=torch, Optional=Optional, **released)(**weights)
    options, script = ["method=angle", "data.max_length=32"], "../examples/NLI/README.md"
    yield recorded(Record("angle", angle, options, {}, PAIRS, scores=SCORES, script=script), loss)
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
    inputs = pairs()
    scores = torch.tensor(SCORES, dtype=torch.float64).repeat_interleave(2)[:, None]
    return record.run(official_model(Encoder), inputs, lambda model: loss(scores, model(inputs)))


class TwoNetworks(nn.Module):
    """Two copies of BERT."""

    def __init__(self, config: object) -> None:
        super().__init__()
        self.bert, self.other = (BertModel(config, add_pooling_layer=False) for _ in range(2))


def contrastive_tension(folders: Path) -> Record:
    """Contrastive Tension (Carlsson et al. 2021): pairs of each of four sentences with itself and the next two."""
    repository = Repository(folders, "FreddeFrallan/Contrastive-Tension", "75293a8", "ContrastiveTension")
    names = {"other.": "positive_encoder.backbone."}
    options = ["method=contrastive_tension", "objective.negatives=2", "data.max_length=32"]
    repaired = "the functions of TensorFlow are those of PyTorch"
    record = Record("contrastive_tension", repository, options, names, SINGLES, repaired)
    framework = SimpleNamespace(
        keras=SimpleNamespace(Model=object), function=lambda function: function, float32=torch.float64,
        cast=lambda x, dtype: x.to(dtype), expand_dims=lambda x, axis: x.unsqueeze(axis),
        reduce_sum=lambda x, axis, keepdims=False: x.sum(axis, keepdim=keepdims),
        losses=SimpleNamespace(
            BinaryCrossentropy=lambda from_logits: lambda y, x: nn.functional.binary_cross_entropy_with_logits(x, y)
        ),
    )  # fmt: skip
    make = repository.nested("ContrastiveTensionModel.py", "ContrastivTensionModel", tf=framework)
    inputs = padded([[tokenizer()(first).input_ids] * 2 for first, _ in PAIRS])
    first = torch.arange(len(PAIRS)).repeat_interleave(3)
    second = (first + torch.arange(3).repeat(len(PAIRS))) % len(PAIRS)

    def loss(model: Any) -> Tensor:
        networks = [lambda x, training, own=own: own(**x) for own in (model.bert, model.other)]
        official: Any = make(*networks)
        given = [[x[rows, 0] for x in inputs.values()] for rows in (first, second)]
        similarities, *_ = official.predictandCompareSents(*given)
        return official.loss((first == second).double(), similarities)

    return record.run(official_model(TwoNetworks), inputs, loss)


class Model(nn.Module):
    """The base class of AllenNLP's models."""

    def __init__(self, vocabulary: object) -> None:
        super().__init__()

    @staticmethod
    def register(name: str) -> Any:
        """Return a decorator that changes nothing."""
        return lambda kind: kind


def declutr(folders: Path) -> Record:
    """DeCLUTR (Giorgi et al. 2021): two documents with two anchors of two positives each."""
    repository = Repository(folders, "JohnGiorgi/DeCLUTR", "b78ac57", "declutr")
    sys.path.insert(0, str(folders / "KevinMusgrave+pytorch-metric-learning" / "src"))
    from pytorch_metric_learning.losses import NTXentLoss

    options = [
        "method=declutr",
        "data.max_length=32",
        "views=dropout",
        "data.roles=[anchor,positive,positive,other,other,other]",
    ]
    rows = [(*TRIPLETS[0], *TRIPLETS[1]), (*TRIPLETS[2], *TRIPLETS[3])]
    names = {"cls.": "objective.mlm.head.model.cls."}
    record = Record("declutr", repository, options, names, rows, "the functions of AllenNLP are those of PyTorch")
    inputs = padded([[tokenizer()(sentence).input_ids for sentence in row] for row in rows])
    by_anchor = {name: x.view(4, 3, -1) for name, x in inputs.items()}
    of_anchors = with_masked({"input_ids": by_anchor["input_ids"][:, 0]})
    masked, labels = of_anchors["mlm_input_ids"], of_anchors["mlm_labels"]
    stubs = ("Vocabulary", "FeedForward", "Seq2VecEncoder", "TextFieldEmbedder", "InitializerApplicator")
    stubs += ("TextFieldTensors", "PyTorchMetricLearningLoss", "PyTorchMetricLearningMiner")
    types = {name: MagicMock() for name in stubs}
    kind = repository.nested(
        "losses/pytorch_metric_learning.py", "PyTorchMetricLearningLoss", Registrable=object, sys=sys, torch=torch,
        Tuple=tuple,
    )  # fmt: skip
    unpack = repository.nested("common/model_utils.py", "unpack_batch", TextFieldTensors=object)

    def mask_tokens(anchors: Any, *_: object) -> Any:
        return {"tokens": anchors["tokens"] | {"token_ids": masked, "masked_lm_labels": labels}}

    def average(states: Tensor, mask: Tensor) -> Tensor:
        return (states * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)

    make = repository.nested(
        "model.py", "DeCLUTR", Model=Model, Dict=dict, Optional=Optional, torch=torch, unpack_batch=unpack,
        mask_tokens=mask_tokens, get_text_field_mask=lambda tokens: tokens["tokens"]["mask"],
        all_gather_anchor_positive_pairs=lambda *pairs: pairs, util=SimpleNamespace(is_distributed=lambda: False),
        **types,
    )  # fmt: skip

    def loss(model: Any) -> Tensor:
        def embed(tokens: Any) -> tuple[Tensor | None, Tensor]:
            inner = tokens["tokens"]
            wanted = inner.get("masked_lm_labels")
            output = model(inner["token_ids"], inner["mask"], labels=wanted, output_hidden_states=True)
            return output.loss, output.hidden_states[-1]

        embed._token_embedders = {"tokens": SimpleNamespace(masked_language_modeling=True, tokenizer=None)}
        released = type("Released", (kind, NTXentLoss), {})(temperature=0.05)
        official = make(None, embed, average, loss=released)
        groups = {"anchors": slice(0, 1), "positives": slice(1, 3)}
        parts = {
            name: {"tokens": dict(zip(("token_ids", "mask"), (x[:, part] for x in by_anchor.values()), strict=True))}
            for name, part in groups.items()
        }
        return official.train()(**parts)["loss"]

    model = official_model(BertForMaskedLM)
    head = BertForMaskedLM.from_pretrained(RECORDS / "bert").cls.state_dict()
    model.cls.load_state_dict(head)
    return record.run(model, inputs | {"mlm_input_ids": masked, "mlm_labels": labels}, loss)
