"""Embeddings of inner layers: an encoder that can be cut to its first layers (2D-Matryoshka, Li et al. 2024)."""

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from simcse_pl.losses.loss import EmbeddedBatch, Loss
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.models.roles import RowKind
from simcse_pl.utils.distributed import from_first_rank
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32
from simcse_pl.utils.types import Batch

# A first part of these models is a model: the output of each layer is normalized, not only that of the last one.
CAN_BE_CUT = ("bert", "roberta", "xlm-roberta", "distilbert", "mpnet", "electra", "camembert", "albert")


class InnerLayer(Loss):
    """The objective on the embeddings of one inner layer, drawn at random in each step.

    In plain terms: an encoder that is loaded with `num_layers=n` should be a good one for every n. For embeddings h of
    the last layer and h' of a layer that is drawn from 1, ..., L - 1, the loss is

        objective(h') + kl_weight * t * KL( softmax(h / t) || softmax(h' / t) )

    where the distributions are over the dimensions, h is constant, and KL is the mean over views and rows. With
    MatryoshkaLoss in both places this is 2D-Matryoshka (Li et al. 2024); the released code of
    sentence-transformers has this divergence. The layer costs a second pass through the encoder.

    Args:
        objective: a loss of embeddings, without parameters.

    Raises:
        UserError: from `attach`, if inner layers may not be the last layers of cut encoders.
    """

    mean_of_rows = False  # the objective's call is weighed

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
        kind = encoder.backbone.config.model_type
        if kind not in CAN_BE_CUT:
            raise UserError(f"the layers of {kind} may not be last layers: choose {', '.join(CAN_BE_CUT)}")

    def check_rows(self, rows: RowKind) -> None:
        """Check the rows for the objective."""
        self.objective.check_rows(rows)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of a layer that the first device draws."""
        last = batch.encoder.backbone.config.num_hidden_layers
        layer = int(from_first_rank(torch.randint(1, last, (1,), device=batch.embeddings.device)))

        def pool(inputs: Batch) -> Tensor:
            rows, views = inputs["input_ids"].shape[:2]
            sequences = {name: x.flatten(0, 1) for name, x in inputs.items()}
            return batch.encoder.pool(sequences, num_layers=layer).view(rows, views, -1)

        pooled = apply_in_chunks(pool, batch.inputs, batch.chunk_size)
        embeddings = batch.encoder.project(pooled, batch.split)
        inner = batch.replaced(embeddings=embeddings, pooled=pooled, queue=None, curves={})
        loss = self.objective.weight * self.objective(inner)
        to, of = (at_least_float32(x) / self.temperature for x in (batch.embeddings.detach(), inner.embeddings))
        divergence = F.kl_div(of.log_softmax(-1), to.log_softmax(-1), reduction="none", log_target=True).sum(-1).mean()
        return loss + self.kl_weight * self.temperature * batch.split.weight * divergence
