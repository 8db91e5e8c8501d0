"""Methods whose official code needs TensorFlow or AllenNLP; the functions of these libraries are those of PyTorch."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn
from transformers import BertForMaskedLM, BertModel

from benchmarks.fidelity.common import PAIRS, RECORDS, TRIPLETS, Record, Repository, official_model, padded, tokenizer
from benchmarks.fidelity.forks import with_masked


def records(folders: Path) -> Iterator[Record]:
    """Yield Contrastive Tension (Carlsson et al. 2021) and DeCLUTR (Giorgi et al. 2021)."""
    yield contrastive_tension(folders)
    yield declutr(folders)


class TwoNetworks(nn.Module):
    """Two copies of BERT."""

    def __init__(self, config: object) -> None:
        super().__init__()
        self.bert, self.other = (BertModel(config, add_pooling_layer=False) for _ in range(2))


def contrastive_tension(folders: Path) -> Record:
    """The loss of pairs of each of four sentences with itself and the next two."""
    repository = Repository(folders, "FreddeFrallan/Contrastive-Tension", "75293a8", "ContrastiveTension")
    names = {"other.": "positive_encoder.backbone."}
    options = ["method=contrastive_tension", "objective.negatives=2", "data.max_length=32"]
    repaired = "the functions of TensorFlow are those of PyTorch"
    record = Record("contrastive_tension", repository, options, names, [[first] for first, _ in PAIRS], repaired)
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
    """The loss of two documents with two anchors of two positives each."""
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
