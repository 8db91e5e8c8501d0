"""Matryoshka representation learning: embeddings whose first dimensions are embeddings, too (Kusupati et al. 2022).

InnerLayer adds embeddings of inner layers: an encoder that can be cut to its first layers (Li et al. 2024).
"""

from collections.abc import Sequence
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch, Loss, check_head_is_kept, check_one_encoder
from simcse_pl.methods.simcse_pp import NegativesWithoutDropout
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.utils.distributed import from_first_rank, world_size
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Batch, RowKind

# A first part of these models is a model: the output of each layer is normalized, not only that of the last one.
CAN_BE_CUT = ("bert", "roberta", "xlm-roberta", "distilbert", "mpnet", "electra", "camembert", "albert")


class MatryoshkaLoss(Loss):
    """A weighted sum of a loss on the first dimensions of the embeddings, for several numbers of dimensions.

    In plain terms: an embedding that is cut to its first 48 dimensions should still be a good one. The loss is that of
    equation 1 of Kusupati et al. (2022), with a loss of embeddings in place of a classifier.

    Args:
        objective: a loss of the embeddings alone.
        dims: the numbers of dimensions. None takes all dimensions, a half, a quarter and an eighth of them.
        weights: one weight per number of dimensions; None for 1 each.

    Raises:
        UserError: from `attach`, if some dimensions would not be trained or do not exist, the head is dropped at test
            time, or the objective is not defined for the first dimensions.
    """

    mean_of_rows = False  # the objective's calls are weighed
    runs_networks = True  # the objective may

    def __init__(
        self,
        objective: Loss,
        dims: Annotated[Sequence[PositiveInt], Field(min_length=1)] | None = None,
        weights: Sequence[NonNegativeFloat] | None = None,
        weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(weight)
        self.objective, self.given = objective, (dims, weights)
        self.weights = _by_dim(dims, weights) if dims else {}

    @property
    def contrasts(self) -> bool:  # type: ignore[override]
        return self.objective.contrasts

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare the objective, and choose the numbers of dimensions if they were not given."""
        self.objective.attach(encoder)
        check_head_is_kept(encoder)
        if not self.objective.truncatable:
            raise UserError(f"objective: {type(self.objective).__name__} needs whole embeddings")
        dims, weights = self.given
        dims = [encoder.embedding_dim // part for part in (1, 2, 4, 8)] if dims is None else dims
        if max(dims) > encoder.embedding_dim:
            raise UserError(f"dims={list(dims)}: the embeddings have {encoder.embedding_dim} dimensions")
        if max(dims) < encoder.dim:
            hint = f"add {encoder.dim}, or set model.truncate_dim={max(dims)}"
            raise UserError(f"dims={list(dims)}: the other dimensions would not be trained: {hint}")
        self.weights = _by_dim(dims, weights)

    def check_rows(self, rows: RowKind) -> None:
        self.objective.check_rows(rows)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        if not self.weights:
            raise UserError("MatryoshkaLoss of plain tensors needs dims=[...]")
        total: Any = 0
        for dim, weight in self.weights.items():
            first = {name: getattr(batch, name)[..., :dim] for name in ("embeddings", "gathered")}
            queue = None if batch.queue is None else batch.queue[:, :dim]
            loss = self.objective(batch.replaced(**first, queue=queue))
            batch.log(f"objective/{dim}", loss)
            total = total + weight * self.objective.weight * loss
        return torch.as_tensor(total)


def _by_dim(dims: Sequence[int], weights: Sequence[float] | None) -> dict[int, float]:
    """Return the weight of each number of dimensions; raise UserError if one has none, or two."""
    weights = [1.0] * len(dims) if weights is None else weights
    if len(weights) != len(dims):
        raise UserError(f"weights={list(weights)}: give one for each of dims={list(dims)}")
    if len({*dims}) != len(dims):
        raise UserError(f"dims={list(dims)}: each number of dimensions has one weight")
    return dict(zip(dims, weights, strict=True))


class InnerLayer(Loss):
    """The objective on the embeddings of one inner layer, drawn at random in each step.

    In plain terms: an encoder that is loaded with `num_layers=n` should be a good one for every n. For embeddings h of
    the last layer and h' of a layer that is drawn from 1, ..., L - 1, the loss is

        objective(h') + kl_weight * t * KL( softmax(h / t) || softmax(h' / t) )

    where the distributions are over the dimensions, h is constant, and KL is the mean over views and rows. With
    MatryoshkaLoss in both places this is 2D-Matryoshka (Li et al. 2024); the released code of
    sentence-transformers has this divergence. The layer costs a second pass through the encoder.

    Args:
        objective: a loss of the embeddings alone.

    Raises:
        UserError: from `attach`, if inner layers may not be the last layers of cut encoders.
    """

    mean_of_rows = False  # the objective's call is weighed
    runs_networks = True

    def __init__(
        self,
        objective: Loss,
        weight: NonNegativeFloat = 1.0,
        kl_weight: NonNegativeFloat = 1.0,
        temperature: PositiveFloat = 0.3,
    ) -> None:
        super().__init__(weight)
        self.objective, self.kl_weight, self.temperature = objective, kl_weight, temperature

    def attach(self, encoder: SentenceEncoder) -> None:
        """Prepare the objective, and check that the encoder can be cut."""
        self.objective.attach(encoder)
        if not self.objective.embeds or isinstance(self.objective, NegativesWithoutDropout):
            raise UserError(f"objective: {type(self.objective).__name__} embeds sentences itself, by the last layer")
        if encoder.backbone.config.num_hidden_layers < 2:
            raise UserError("the model has one layer: there is no inner layer")
        kind = encoder.backbone.config.model_type
        if kind not in CAN_BE_CUT:
            raise UserError(f"the layers of {kind} may not be last layers: choose {', '.join(CAN_BE_CUT)}")
        if max(encoder.pooling_layer.layers or (-1,)) > 1:
            raise UserError(f"model.pooling={encoder.pooling}: inner layers do not have its layers: choose mean or cls")

    def check_rows(self, rows: RowKind) -> None:
        self.objective.check_rows(rows)

    def draw(self, encoder: SentenceEncoder) -> int:
        """Return the layer that the first device draws."""
        layer = torch.randint(1, encoder.backbone.config.num_hidden_layers, (1,))
        return int(layer if world_size() == 1 else from_first_rank(layer.to(encoder.device)))

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        check_one_encoder(batch)
        layer = batch.drawn[self] if self in batch.drawn else self.draw(batch.encoder)

        def pool(inputs: Batch) -> Tensor:
            rows, views = inputs["input_ids"].shape[:2]
            sequences = {name: x.flatten(0, 1) for name, x in inputs.items()}
            return batch.encoder.pool(sequences, num_layers=layer).view(rows, views, -1)

        pooled = apply_in_chunks(pool, batch.inputs, batch.chunk_size)
        embeddings = batch.encoder.project(pooled, batch.split)
        inner = batch.replaced(embeddings=embeddings, pooled=pooled, queue=None, curves={})
        loss = self.objective.weight * self.objective(inner)
        to, of = (x / self.temperature for x in (batch.embeddings.detach(), inner.embeddings))
        divergence = F.kl_div(of.log_softmax(-1), to.log_softmax(-1), reduction="none", log_target=True).sum(-1).mean()
        return loss + self.kl_weight * self.temperature * batch.split.weight * divergence
