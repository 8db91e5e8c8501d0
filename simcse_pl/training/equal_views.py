"""Find a run of unsupervised SimCSE that cannot learn: without dropout, both views of a sentence are equal."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from simcse_pl.data.training_set import TrainingSet
from simcse_pl.models.adapters import adapter_parameters
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.training.module import views_of
from simcse_pl.utils.errors import UserError


@torch.no_grad()
def check_views_differ(encoder: SentenceEncoder, sets: Iterable[TrainingSet]) -> None:
    """Raise UserError if the first two views of rows have equal tokens, and the encoder in training equal vectors.

    Most decoders have no dropout that is on by default.
    """
    encoder.train()
    for dataset in sets:
        batch = dataset.batch([(0, row) for row in range(min(2, len(dataset.chosen)))])
        inputs = {name: x[:, :2].to(encoder.device) for name, x in views_of(batch).items()}
        ids = inputs["input_ids"]
        with torch.random.fork_rng(devices=[]), _as_if_trained(encoder):
            first, second = encoder.pool_views(inputs).unbind(dim=1)
        if torch.equal(ids[:, 0], ids[:, 1]) and torch.equal(first, second):
            raise UserError(
                f"model.dropout: the two views of a sentence of {dataset.train} have equal vectors without dropout: "
                "set model.attention_dropout=0.1, model.dropout=0.1 or model/adapter=lora"
            )


@contextmanager
def _as_if_trained(encoder: SentenceEncoder) -> Iterator[None]:
    """Within the block, an adapter has random weights: a new one adds 0, and so its dropout has no effect."""
    names = adapter_parameters(encoder.backbone)
    weights = [weight for name, weight in encoder.backbone.named_parameters() if name in names]
    before = [weight.clone() for weight in weights]
    for weight in weights:
        weight.normal_()
    try:
        yield
    finally:
        for weight, value in zip(weights, before, strict=True):
            weight.copy_(value)
