"""PCL (Wu et al. 2022): a second trained network embeds many views of a row and agrees with the encoder."""

import copy
from abc import abstractmethod

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from simcse_pl.data.view import Rate, SentenceView, ViewInput
from simcse_pl.losses.contrastive import contrastive_loss
from simcse_pl.losses.loss import EmbeddedBatch, Loss, Needs, select_views
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.heads import projection_head
from simcse_pl.utils.tensors import paired_similarity, similarity_matrix
from simcse_pl.utils.types import Role, Tokens


class PeerNetwork(Loss):
    """The losses of many views of a row and of a peer network (PCL, Wu et al. 2022, section 3).

    In plain terms: a copy of the encoder is trained on the same views. For both networks, all views of a row should be
    more similar to its anchor than the anchors of other rows. Both should find the same views similar to an anchor.

    For two networks a and b, row i is compared with its own views v_ik and with the anchors x_j of the other rows.
    S_i(a, b) is the softmax over these logits:

        cos(a(x_i), b(v_ik)) / t for all k,    cos(a(x_i), b(x_j)) / t for all j != i

    Let A be the encoder and B the peer. BCE is the mean cross-entropy of the sigmoid of S, with the label 1 for the own
    views and 0 for the other anchors. KL is the mean of q (log q - log p) over the entries of S. InfoNCE is that of the
    anchors and first positives. The loss is

        BCE(S(A, A)) + BCE(S(B, B)) + InfoNCE(B) + KL(p = S(A, B), q = S(B, A)) + KL(p = S(A, A), q = S(B, B))

    The objective adds InfoNCE of A. The peer has a pooler of its own, Linear + Tanh, before the encoder's projection
    head, which both share.

    Args:
        weight: 1 in the paper.
        temperature: t; set it to the objective's.
    """

    runs_networks = True
    needs = Needs(labels="any")
    peer: SentenceEncoder
    pooler: nn.Module

    def __init__(self, weight: NonNegativeFloat = 1.0, temperature: PositiveFloat = 0.05) -> None:
        super().__init__(weight)
        self.temperature = temperature

    def attach(self, encoder: SentenceEncoder) -> None:
        """Copy the encoder without its head, and initialize the pooler."""
        self.peer = copy.deepcopy(encoder)
        self.peer.projection = None
        self.pooler = projection_head(encoder.backbone, "mlp", encoder.pooled_dim)

    def forward(self, batch: EmbeddedBatch) -> Tensor:
        views = batch.views(Role.POSITIVE, Role.OTHER)
        pooled = self.peer.pool_views(batch.inputs, batch.chunk_size)
        networks = batch.embeddings, batch.encoder.project(self.pooler(pooled), batch.split)
        anchors = [embeddings[:, 0] for embeddings in networks]
        gathered_peer = batch.gather(select_views(networks[1], [0, views[0]]))
        gathered = [batch.gathered[:, 0], gathered_peer[:, 0]]
        itself = F.pad(batch.is_itself(), (len(views), 0))
        scores = {}  # log S(a, b), by the numbers of the networks
        for b, embeddings in enumerate(networks):
            own_views = select_views(embeddings, views)
            for a in range(2):
                with_views = paired_similarity(anchors[a][:, None], own_views)
                cosines = torch.cat([with_views, similarity_matrix(anchors[a], gathered[b])], dim=1)
                scores[a, b] = (cosines / self.temperature).masked_fill(itself, -torch.inf).log_softmax(dim=1)
        offset = batch.split.label_offset
        loss = contrastive_loss(anchors[1], gathered_peer[:, 1], temperature=self.temperature, label_offset=offset)
        labels = F.pad(torch.ones_like(itself[:, : len(views)], dtype=loss.dtype), (0, len(gathered_peer)))
        for within in (scores[0, 0], scores[1, 1]):
            errors = F.binary_cross_entropy_with_logits(within.exp(), labels, reduction="none")
            loss = loss + _mean_without(itself, errors)
        for p, q in ((scores[0, 1], scores[1, 0]), (scores[0, 0], scores[1, 1])):
            log_p, log_q = p.masked_fill(itself, 0), q.masked_fill(itself, 0)
            loss = loss + _mean_without(itself, log_q.exp() * (log_q - log_p))
        return loss


def _mean_without(masked: Tensor, terms: Tensor) -> Tensor:
    """Return the mean of terms [n, m] without the masked term of each row."""
    return terms.masked_fill(masked, 0).sum() / (terms.numel() - len(terms))


class _InnerTokens(SentenceView):
    """A view that changes the tokens between the special ones."""

    def make(self, source: ViewInput) -> Tokens:
        start, end = source.special
        last = len(source.tokens) - end
        inner = self.change(source.tokens[start:last].tolist(), source)
        return np.concatenate([source.tokens[:start], np.array(inner, dtype=source.tokens.dtype), source.tokens[last:]])

    @abstractmethod
    def change(self, inner: list[int], source: ViewInput) -> list[int]:
        """Return the tokens of a view for those of a sentence, which it may change in place."""


class TokenShuffle(_InnerTokens):
    """The subwords of the sentence in random order (PCL, Wu et al. 2022)."""

    def change(self, inner: list[int], source: ViewInput) -> list[int]:
        source.random.shuffle(inner)
        return inner


class TokenReversal(_InnerTokens):
    """The subwords of the sentence in reverse order (PCL, Wu et al. 2022)."""

    def change(self, inner: list[int], source: ViewInput) -> list[int]:
        return inner[::-1]


class TokenDeletion(_InnerTokens):
    """The sentence without some of its subwords (PCL, Wu et al. 2022).

    As in the released code, the first occurrence of a chosen subword is removed.

    Args:
        rate: the fraction of subwords to delete, rounded to the nearest number.
    """

    def __init__(self, rate: Rate = 0.2, role: Role = Role.POSITIVE) -> None:
        super().__init__(role)
        self.rate = rate

    def change(self, inner: list[int], source: ViewInput) -> list[int]:
        for _ in range(round(self.rate * len(inner))):
            inner.remove(source.random.choice(inner))
        return inner


class TokenInsertion(_InnerTokens):
    """The sentence with copies of some of its subwords at random positions (PCL, Wu et al. 2022: repetition).

    Args:
        rate: the number of copies, as a fraction of the subwords, rounded to the nearest number.
        max_length: the number of tokens that the view may have, special tokens included; None for that of the model.
            There are fewer copies in a longer view.
    """

    def __init__(self, rate: Rate = 0.2, max_length: int | None = None, role: Role = Role.POSITIVE) -> None:
        super().__init__(role)
        self.rate, self.max_length = rate, max_length

    def change(self, inner: list[int], source: ViewInput) -> list[int]:
        limits = [limit - len(source.tokens) for limit in (self.max_length, source.longest) if limit is not None]
        for _ in range(min([round(self.rate * len(inner)), *limits])):
            token = source.random.choice(inner)
            inner.insert(source.random.randint(0, len(inner)), token)
        return inner
