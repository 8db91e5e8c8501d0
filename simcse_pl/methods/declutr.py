"""DeCLUTR (Giorgi et al. 2021): anchors and positives are spans of documents, and anchors are masked."""

from random import Random
from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor

from simcse_pl.data.view import Segmenter, SentenceView, ViewInput, spaces
from simcse_pl.losses.contrastive import ContrastiveLoss
from simcse_pl.losses.loss import EmbeddedBatch, Needs
from simcse_pl.losses.mlm import MaskedLanguageModeling
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.tokenization import BEGINS_WORD
from simcse_pl.utils.distributed import split_of
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.types import Role, RowKind


class Spans(SentenceView):
    """Spans of a document, in place of the document: each anchor, followed by its positives (Giorgi et al. 2021, 3.2).

    A length is l_min + b (l_max - l_min), rounded down, with b of Beta(4, 2) for anchors and of Beta(2, 4) for
    positives. Anchors are in different parts of l_max words, which are not neighbours as far as there are enough. A
    positive is within, around or beside its anchor, or overlaps with it. Other anchors than the first, and their
    positives, have the role `other`; `DeCLUTRLoss` reads them.

    Args:
        anchors, positives: the number of anchors, and of positives of each.
        min_words, max_words: l_min and l_max; in a short document, both are at most 1 / (2 anchors) of its words.
        segment: splits a document into words.
    """

    def __init__(
        self,
        anchors: PositiveInt = 2,
        positives: PositiveInt = 2,
        min_words: PositiveInt = 32,
        max_words: PositiveInt = 512,
        segment: Segmenter = spaces,
    ) -> None:
        super().__init__()
        self.anchors, self.positives, self.segment = anchors, positives, segment
        self.min_words, self.max_words = min_words, max_words

    @property
    def roles(self) -> list[str]:
        others = [Role.OTHER] * (self.anchors - 1) * (1 + self.positives)
        return [Role.ANCHOR, *[Role.POSITIVE] * self.positives, *others]

    def make(self, source: ViewInput) -> list[str]:
        words = self.segment(source.sentence)
        return ["".join(words[start:end]).strip() for start, end in self.draw(len(words), source.random)]

    def draw(self, words: int, random: Random) -> list[tuple[int, int]]:
        """Return where each span starts and ends in a sentence of `words`, drawn in the order of the released code."""
        if not words:
            return [(0, 0)] * (self.anchors * (1 + self.positives))
        longest = max(1, min(self.max_words, words // (2 * self.anchors)))
        shortest = min(self.min_words, longest)
        parts, spans = list(range(0, max(1, words - longest + 1), longest)), []
        for left in range(self.anchors, 0, -1):
            length = int(random.betavariate(4, 2) * (longest - shortest) + shortest)
            part = random.choice([0, len(parts) - 1] if len(parts) // left < left else range(len(parts)))
            start = random.choice(range(parts[part], parts[part] + longest - length + 1))
            end = start + length
            parts = [*parts[: max(0, part - 1)], *parts[part + 2 :]] or parts
            spans.append((start, end))
            for _ in range(self.positives):
                length = int(random.betavariate(2, 4) * (longest - shortest) + shortest)
                first = random.choice(range(max(0, start - length), min(end, words - length) + 1))
                spans.append((first, first + length))
        return spans


class DeCLUTRLoss(ContrastiveLoss):
    """The loss of DeCLUTR (Giorgi et al. 2021, 3.1): NT-Xent of spans, and masked language modelling of anchors.

    In plain terms: the vector of an anchor, some of whose tokens are masked, should be similar to the mean vector of
    its positives, and not to those of all other anchors of the batch, also of the same document. NT-Xent is
    `ContrastiveLoss` with `symmetric` and `same_role`. The masked tokens of the anchors are predicted, too.

    Args:
        mlm: masks the anchors and predicts their tokens; it has the weight of this term.
        contrast: the arguments of ContrastiveLoss.
    """

    embeds = False  # it masks the anchors before it embeds the batch
    mean_of_rows = False  # one term is a mean over tokens
    runs_networks = True
    truncatable = False
    needs = Needs(negatives=False)

    def __init__(self, mlm: MaskedLanguageModeling, **contrast: Any) -> None:
        super().__init__(**contrast)
        self.mlm = mlm

    def attach(self, encoder: SentenceEncoder) -> None:
        self.mlm.attach(encoder)

    def check_rows(self, rows: RowKind) -> None:
        super().check_rows(rows)
        self.mlm.check_rows(rows)
        group = 1 + rows.roles.count(Role.POSITIVE)
        if Role.POSITIVE in rows.roles[group:] or len(rows.roles) % group:
            raise UserError(
                f"rows need anchors with equally many positives, not {', '.join(rows.roles)}: set views=spans"
            )

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's rows; without the tokens if their vectors are given."""
        group, masked = 1 + len(batch.views(Role.POSITIVE)), None
        if not batch.embedded:
            masked = {name: x[:, ::group] for name, x in batch.inputs.items()}
            masked["input_ids"], masked["labels"] = self.mlm.mask(masked["input_ids"], masked.get(BEGINS_WORD))
            batch.inputs = batch.inputs | {"input_ids": batch.inputs["input_ids"].clone()}
            batch.inputs["input_ids"][:, ::group] = masked["input_ids"]
            batch.embed()
        by_anchor = batch.embeddings.unflatten(1, (-1, group)).flatten(0, 1)
        contrasted = batch.replaced(
            embeddings=torch.stack([by_anchor[:, 0], by_anchor[:, 1:].mean(dim=1)], dim=1),
            inputs={name: x.unflatten(1, (-1, group)).flatten(0, 1) for name, x in batch.inputs.items()},
            roles=(Role.ANCHOR, Role.POSITIVE),
            split=split_of(tuple(rows * (len(batch.roles) // group) for rows in batch.split.rows)),
        )
        loss = contrasted.split.weight * super().forward(contrasted)
        if masked is None:
            return loss
        mlm_loss = self.mlm.mean_over_chosen(batch, batch.encoder.backbone, masked)
        batch.log("objective/mlm", mlm_loss)
        return loss + self.mlm.weight * mlm_loss
