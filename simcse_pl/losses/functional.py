"""The objective's equations, as functions of tensors. Numbers of equations are the paper's."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.utils.tensors import at_least_float32, unit_vectors

SIMILARITIES = ("cosine", "dot")


def similarity_matrix(queries: Tensor, keys: Tensor, similarity: str = "cosine") -> Tensor:
    """The similarity of every query with every key.

    Args:
        queries: [n, dim].
        keys: [m, dim].
        similarity: `cosine`, or `dot` for the plain inner product (Table D.1).

    Returns:
        [n, m], at least in float32 whatever the precision of the embeddings.
    """
    with torch.autocast(queries.device.type, enabled=False):  # which would take the product down again
        scaled = unit_vectors if similarity == "cosine" else at_least_float32
        return scaled(queries) @ scaled(keys).T


def contrastive_loss(
    anchors: Tensor,
    positives: Tensor,
    hard_negatives: Tensor | None = None,
    queue: Tensor | None = None,
    *,
    temperature: float = 0.05,
    hard_negative_weight: float = 1.0,
    similarity: str = "cosine",
    label_offset: int = 0,
    negative_mask: Tensor | None = None,
    decoupled: bool = False,
) -> Tensor:
    """The contrastive loss: equations 1 and 4 without hard negatives, 5 with them, 8 with their weight.

    For the anchor h_i with the positive h_i+ and the hard negatives h_j-, over the whole batch j = 1..N:

        -log( exp(sim(h_i, h_i+) / t) / sum_j ( exp(sim(h_i, h_j+) / t) + alpha^[i = j] exp(sim(h_i, h_j-) / t) ) )

    With several hard negatives a row the second term is summed over them. Alpha weighs a row's own hard
    negatives, and is the weight itself: the logits get its logarithm. A queue h_m of
    embeddings from other batches adds sum_m exp(sim(h_i, h_m) / t) to what is summed over j (ESimCSE, Wu et al. 2022).

    Args:
        anchors: [n, dim], the rows to take the loss of.
        positives: [m, dim], the positives of all rows; m > n where the other rows are on other devices.
        hard_negatives: [m, k, dim], or None.
        queue: [q, dim], embeddings of batches before, or None.
        temperature: t, above 0.
        hard_negative_weight: alpha, 0 or more; at 0 a row's own hard negatives take no part.
        similarity: `cosine` or `dot`.
        label_offset: the index in `positives` of the first anchor's own positive.
        negative_mask: [n, up to m + m k + q] bool, or None: which positives, then which hard negatives row by row, then
            which of the queue take no part in the sum for an anchor; never its own positive. What is beyond the last
            column does.
        decoupled: leave a row's own positive out of its sum (Yeh et al. 2022); a row without negatives has loss 0.

    Returns:
        The mean over the anchors, a scalar.
    """
    n, m = len(anchors), len(positives)
    parts = [positives, *(part.reshape(-1, part.shape[-1]) for part in (hard_negatives, queue) if part is not None)]
    keys = torch.cat(parts)
    k = 0 if hard_negatives is None else hard_negatives.shape[1]
    rows = torch.arange(m, device=anchors.device)
    own = rows[label_offset : label_offset + n]
    negative_of = F.pad(rows.repeat_interleave(k), (m, len(keys) - m - m * k), value=-1)
    logits = similarity_matrix(anchors, keys, similarity) / temperature
    if hard_negative_weight != 1.0:
        log_alpha = math.log(hard_negative_weight) if hard_negative_weight > 0 else -math.inf
        logits = torch.where(negative_of == own[:, None], logits + log_alpha, logits)
    if negative_mask is not None:
        logits = logits.masked_fill(F.pad(negative_mask, (0, len(keys) - negative_mask.shape[1])), -math.inf)
    return _decoupled_cross_entropy(logits, own) if decoupled else F.cross_entropy(logits, own)


@torch.no_grad()
def near_negatives(
    anchors: Tensor,
    positives: Tensor,
    hard_negatives: Tensor | None = None,
    queue: Tensor | None = None,
    *,
    threshold: float,
    label_offset: int = 0,
) -> Tensor:
    """Return which negatives are too near to be ones (DCLR, Zhou et al. 2022; GISTEmbed, Solatorio 2024).

    Args:
        anchors, positives, hard_negatives, queue, label_offset: see `contrastive_loss`. These may be the vectors of
            another encoder than the one that is trained.
        threshold: a cosine; nearer ones are false negatives. An anchor's own positive and hard negatives never are.

    Returns:
        [n, m + m k + q] bool, a `negative_mask` of `contrastive_loss`.
    """
    m, k = len(positives), 0 if hard_negatives is None else hard_negatives.shape[1]
    parts = [positives, *(part.reshape(-1, part.shape[-1]) for part in (hard_negatives, queue) if part is not None)]
    keys = torch.cat(parts)
    rows = torch.arange(m, device=anchors.device)
    row_of = F.pad(torch.cat([rows, rows.repeat_interleave(k)]), (0, len(keys) - m - m * k), value=-1)
    own = rows[label_offset : label_offset + len(anchors), None]
    return (similarity_matrix(anchors, keys) > threshold) & (row_of != own)


def _decoupled_cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """The mean cross-entropy of rows without their own class in the sum; 0 of a row that has no other."""
    others = logits.scatter(1, classes[:, None], -math.inf)
    alone = others.isneginf().all(dim=1)
    sums = others.masked_fill(alone[:, None], 0).logsumexp(dim=1)  # finite, as its gradient has to be
    return (sums - logits.gather(1, classes[:, None]).squeeze(1)).masked_fill(alone, 0).mean()


def siamese_softmax_loss(first: Tensor, second: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """The classification objective of Sentence-BERT (Reimers and Gurevych 2019, section 3): the cross-entropy of

        o = softmax(W_t (u, v, |u - v|))

    Args:
        first, second: u and v, [n, dim], row i of one paired with row i of the other.
        labels: [n] int64, each pair's class.
        weights: W_t, [classes, 3 dim]. There is no bias in the equation.

    Returns:
        The mean over the pairs, a scalar, at least in float32 whatever the precision of the embeddings.
    """
    with torch.autocast(first.device.type, enabled=False):  # which would take the product down again
        first, second = at_least_float32(first), at_least_float32(second)
        features = torch.cat([first, second, (first - second).abs()], dim=-1)
        return F.cross_entropy(features @ at_least_float32(weights).T, labels)
