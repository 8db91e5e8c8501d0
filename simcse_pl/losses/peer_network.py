"""A second trained network that embeds the same views and agrees with the encoder."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simcse_pl.losses.auxiliary import AuxiliaryLoss
from simcse_pl.losses.embedded_batch import EmbeddedBatch, select_views
from simcse_pl.losses.functional import contrastive_loss, similarity_matrix
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.heads import projection_head
from simcse_pl.models.roles import Role
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.validation import check_positive


class PeerNetwork(AuxiliaryLoss):
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
    head, which both share. Training checkpoints contain the peer; saved encoders do not.

    Args:
        weight: 0 or more; 1 in the paper.
        temperature: t, above 0; set it to the objective's.
    """

    name = "peer_network"
    needs_positive = True
    peer: SentenceEncoder
    pooler: nn.Module

    def __init__(self, weight: float = 1.0, temperature: float = 0.05) -> None:
        super().__init__(weight)
        check_positive(f"{self.option}.temperature", temperature)
        self.temperature = temperature

    def attach(self, encoder: SentenceEncoder) -> None:
        """Copy the encoder without its head, and initialize the pooler."""
        self.peer = copy.deepcopy(encoder)
        self.peer.projection = None
        self.pooler = projection_head(encoder.backbone, "mlp", encoder.hidden_size)

    def forward(self, encoder: SentenceEncoder, batch: EmbeddedBatch) -> Tensor:
        """Return the loss of this device's rows, without the weight."""
        (anchor,), views = batch.views(Role.ANCHOR), batch.views(Role.POSITIVE, Role.OTHER)
        pooled = self.peer.pool_views(batch.inputs, self.chunk_size)
        networks = batch.embeddings, encoder.project(self.pooler(pooled))
        anchors = [embeddings[:, anchor] for embeddings in networks]
        gathered = batch.gather(torch.stack([*anchors, networks[1][:, views[0]]], dim=1))
        offset = batch.split.label_offset
        itself = torch.eye(len(gathered), dtype=torch.bool, device=gathered.device)[offset : offset + len(anchors[0])]
        itself = F.pad(itself, (len(views), 0))
        scores = {}  # log S(a, b), by the numbers of the networks
        for b, embeddings in enumerate(networks):
            for a in range(2):
                same = unit_vectors(anchors[a])[:, None] * unit_vectors(select_views(embeddings, views))
                cosines = torch.cat([same.sum(dim=-1), similarity_matrix(anchors[a], gathered[:, b])], dim=1)
                scores[a, b] = (cosines / self.temperature).masked_fill(itself, -torch.inf).log_softmax(dim=1)
        loss = contrastive_loss(anchors[1], gathered[:, 2], temperature=self.temperature, label_offset=offset)
        labels = F.pad(torch.ones_like(itself[:, : len(views)], dtype=loss.dtype), (0, len(gathered)))
        for within in (scores[0, 0], scores[1, 1]):
            errors = F.binary_cross_entropy_with_logits(within.exp(), labels, reduction="none")
            loss = loss + _mean_without(itself, errors)
        for p, q in ((scores[0, 1], scores[1, 0]), (scores[0, 0], scores[1, 1])):
            log_p, log_q = p.masked_fill(itself, 0), q.masked_fill(itself, 0)
            loss = loss + _mean_without(itself, log_q.exp() * (log_q - log_p))
        return batch.split.weight * loss


def _mean_without(masked: Tensor, terms: Tensor) -> Tensor:
    """Return the mean of terms [n, m] without the one of each row that is masked."""
    return terms.masked_fill(masked, 0).sum() / (terms.numel() - len(terms))
