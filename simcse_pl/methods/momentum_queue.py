"""A queue of past embeddings as negatives (MoCo, He et al. 2020; ESimCSE, Wu et al. 2022)."""

import copy
from typing import Annotated, Any, Self

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from simcse_pl.models.backbone import draw_model
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.utils.distributed import BatchSplit, all_gather_with_grad
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Batch, checked


class MomentumQueue(nn.Module):
    """The anchors of past batches, embedded without dropout by a moving average of the backbone.

    In each step, the weights of the copy become momentum * copy + (1 - momentum) * backbone. The
    copy then embeds the anchors of all devices, and the queue drops its oldest rows. The trained
    encoder's own projection head maps the embeddings, as in ESimCSE's released code: a moving average
    of a head that starts from random weights would lag behind. The copy gets no gradients. Training
    checkpoints contain it; saved encoders do not.

    Args:
        size: number of embeddings kept. ESimCSE uses 2.5 times the batch size.
        momentum: the share of the copy that stays. ESimCSE uses 0.995.
        pretrained: whether the copy starts with the encoder's weights. If not, its trained weights are random, as in
            ESimCSE's released code.
    """

    encoder: SentenceEncoder
    rows: Tensor

    @checked
    def __init__(
        self, size: PositiveInt = 160, momentum: Annotated[float, Field(ge=0, lt=1)] = 0.995, pretrained: bool = True
    ) -> None:
        super().__init__()
        self.size, self.momentum, self.pretrained = size, momentum, pretrained
        self._filled = 0  # on the host, as reading it from a GPU would synchronize

    def attach(self, encoder: SentenceEncoder) -> None:
        """Copy the encoder without its head, and start with an empty queue.

        Raises:
            UserError: `template_bias` applies in training mode only, which the copy never enters; the head is
                `transform`, which `encoder.project` does not apply; or `pretrained` is false with an adapter.
        """
        if encoder.template_bias.endswith("train_only") or encoder.head == "transform":
            option = "head=transform" if encoder.head == "transform" else f"template_bias={encoder.template_bias}"
            raise UserError(f"queue: it does not support model.{option}: change it, or set queue=null")
        self.encoder = copy.deepcopy(encoder).requires_grad_(False)
        self.encoder.projection = None
        if not self.pretrained:
            drawn = dict(draw_model(encoder.backbone.config).named_parameters())
            for name, weight in encoder.backbone.named_parameters():
                if weight.requires_grad:  # frozen weights stay equal in both
                    if name not in drawn:
                        raise UserError("pretrained=false draws a model, not an adapter: leave it out")
                    self.encoder.backbone.get_parameter(name).data.copy_(drawn[name])
        self.register_buffer("rows", torch.zeros(self.size, encoder.embedding_dim))
        self.train(encoder.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the queue; the copy stays in evaluation mode, without dropout."""
        super().train(mode)
        self.encoder.eval()
        return self

    def negatives(self) -> Tensor:
        """Return the embeddings, [filled, dim], the newest last."""
        return self.rows[self.size - self._filled :].clone()  # backward needs the values from before `update`

    @torch.no_grad()
    def update(
        self, encoder: SentenceEncoder, batch: Batch, chunk_size: float | None = None, split: BatchSplit | None = None
    ) -> None:
        """Move the copy towards the backbone, and add the anchors of a batch, tensors [batch, views, tokens].

        `encoder` is that of `attach`. `chunk_size` rows are embedded at once, None for all. `split` has the
        number of rows that each device holds; None to ask the other devices.
        """
        trained = dict(encoder.named_parameters())
        for name, averaged in self.encoder.named_parameters():
            new = trained[name]
            if new.requires_grad:
                averaged.lerp_(new.to(averaged.dtype), 1 - self.momentum)
        first_views = {name: x[:, 0] for name, x in batch.items()}
        anchors = encoder.project(apply_in_chunks(self.encoder.forward, first_views, chunk_size), split).float()
        (anchors,) = all_gather_with_grad(anchors, split=split)
        self.rows.copy_(torch.cat([self.rows, anchors])[-self.size :])
        self._filled = min(self.size, self._filled + len(anchors))

    def get_extra_state(self) -> int:
        return self._filled

    def set_extra_state(self, state: Any) -> None:
        self._filled = state
