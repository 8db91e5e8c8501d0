"""CSE-SFP (Zhang, Song and Li 2025): one pass of a decoder gives both vectors of a pair."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from simcse_pl.data.collator import TrainingRows
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import EmbeddedBatch, check_one_encoder
from simcse_pl.models.backbone import run_backbone
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.gradient_cache import apply_in_chunks
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import at_least_float32
from simcse_pl.utils.types import Batch, RowKind, default_roles


class SinglePassLoss(ContrastiveLoss):
    """The contrastive loss of two tokens of each sentence (CSE-SFP, Zhang, Song and Li 2025).

    In plain terms: a template asks a decoder twice for the meaning of a sentence, such as 'This sentence : "{sentence}"
    means in one word, it can be summarized as'. The state of its last token is the anchor. The state of the last token
    before the ending ", it can be summarized as" is the positive. The two differ without dropout, because the anchor's
    token attends to more tokens, and one pass gives both. Only the anchor's token is read at test time. Any pooling can
    take the place of the last token.

    Args:
        ending: the end of the template that the positive is without.
        contrast: the arguments of ContrastiveLoss.
    """

    embeds, runs_networks = False, True
    truncatable = False

    def __init__(self, ending: str = ", it can be summarized as", **contrast: Any) -> None:
        super().__init__(**contrast)
        self.ending = ending

    def attach(self, encoder: SentenceEncoder) -> None:
        """Count the tokens of the ending; raise UserError if the template has another, or for some encoders."""
        if encoder.template_bias != "none" or encoder.head == "transform" or encoder.pooling_layer.run:
            needed = "model.template_bias=none, another head than transform, and another pooling than ditto"
            raise UserError(f"this loss pools two tokens of one pass: set {needed}")
        template = "".join(encoder.templates.texts[:1])
        if not template.endswith(self.ending):
            raise UserError(f"model.template={template!r} does not end in {self.ending!r}: change objective.ending")
        texts = [template, template.removesuffix(self.ending)]
        whole, before = (len(ids) for ids in encoder.tokenizer(texts, add_special_tokens=False)["input_ids"])
        self.tokens_after = whole - before + encoder.templates.special[1]

    def check_rows(self, rows: RowKind) -> None:
        """Raise UserError if rows have other sentences than the anchor and its copy, which would be ignored."""
        super().check_rows(rows)
        if isinstance(rows, TrainingRows) and rows.columns != (0, 0):
            raise UserError("this loss makes pairs of single sentences: set data.columns to one, and views=dropout")

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        check_one_encoder(batch)
        anchors = {name: x[:, 0] for name, x in batch.inputs.items()}
        pooled = apply_in_chunks(partial(self._pairs, batch.encoder), anchors, batch.chunk_size)
        embeddings = batch.encoder.project(pooled, batch.split)
        inputs = {name: x[:, None].expand(-1, 2, -1) for name, x in anchors.items()}
        return super().forward(batch.replaced(inputs=inputs, roles=default_roles(2), embeddings=embeddings))

    def _pairs(self, encoder: SentenceEncoder, inputs: Batch) -> Tensor:
        """Return the vectors of whole sequences, and of those without the ending, [rows, 2, hidden]."""
        mask, last_only = inputs["attention_mask"], encoder.pooling_layer.layers == (-1,)
        states = run_backbone(encoder.backbone, inputs, last_only)
        before = mask * (mask.cumsum(dim=1) <= mask.sum(dim=1, keepdim=True) - self.tokens_after)
        pooled = [encoder.pooling_layer(states, {**inputs, "attention_mask": kept}) for kept in (mask, before)]
        return at_least_float32(torch.stack(pooled, dim=1))
