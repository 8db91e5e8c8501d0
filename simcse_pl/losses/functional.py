"""Loss functions of tensors. Equation numbers are those of the SimCSE paper."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.utils.tensors import at_least_float32, unit_vectors

SIMILARITIES = ("cosine", "dot")


def similarity_matrix(queries: Tensor, keys: Tensor, similarity: str = "cosine") -> Tensor:
    """Return the similarity of every query [n, dim] with every key [m, dim], [n, m].

    The similarity is `cosine`, or `dot` for the inner product (Table D.1). It is in float32 if the
    embeddings are in half precision.
    """
    with torch.autocast(queries.device.type, enabled=False):  # it would multiply in half precision
        scaled = unit_vectors if similarity == "cosine" else at_least_float32
        return scaled(queries) @ scaled(keys).T


def paired_similarity(first: Tensor, second: Tensor, similarity: str = "cosine") -> Tensor:
    """Return the similarity of each pair of vectors, [...], for two tensors [..., dim]; see `similarity_matrix`."""
    scaled = unit_vectors if similarity == "cosine" else at_least_float32
    return (scaled(first) * scaled(second)).sum(dim=-1)


def contrastive_loss(
    anchors: Tensor,
    positives: Tensor,
    hard_negatives: Tensor | None = None,
    queue: Tensor | None = None,
    positive_similarities: Tensor | None = None,
    further_similarities: Tensor | None = None,
    *,
    temperature: float = 0.05,
    hard_negative_weight: float = 1.0,
    similarity: str = "cosine",
    label_offset: int = 0,
    negative_mask: Tensor | None = None,
    decoupled: bool = False,
    hardness: float = 0.0,
) -> Tensor:
    """Return the contrastive loss of SimCSE, which compares each anchor with the whole batch.

    In plain terms: each anchor should be more similar to its own positive than to the positives and
    hard negatives of all other rows. The loss is the cross-entropy of finding its own positive.

    These are equations 1 and 4 without hard negatives, 5 with them, and 8 with their weight. For the
    anchor h_i, its positive h_i+ and the hard negatives h_j- of the rows j = 1..N, it is the mean of

        -log( exp(sim(h_i, h_i+) / t) / sum_j ( exp(sim(h_i, h_j+) / t) + alpha^[i = j] exp(sim(h_i, h_j-) / t) ) )

    With several hard negatives per row, the second term is summed over them. A queue of embeddings
    h_m from other batches adds sum_m exp(sim(h_i, h_m) / t) to the sum over j (ESimCSE, Wu et al.
    2022).

    With a hardness beta above 0, each negative's term x of a sum is multiplied by x^beta, divided by the
    mean of x^beta over the negatives of this sum (Robinson et al. 2021, without the correction for false
    negatives). As in their released code, the gradient includes these weights.

    Args:
        anchors: [n, dim], the rows to compute the loss of.
        positives: [m, dim], the positives of all rows; m > n if other rows are on other devices.
        hard_negatives: [m, k, dim], or None.
        queue: [q, dim], embeddings of past batches, or None.
        positive_similarities: [n], replace the similarities of the anchors with their own positives, or None.
        further_similarities: [n, f], of each anchor with further negatives, or None.
        temperature: t, above 0.
        hard_negative_weight: alpha, 0 or more; 0 removes a row's own hard negatives from its sum.
        similarity: `cosine` or `dot`.
        label_offset: the index in `positives` of the first anchor's own positive.
        negative_mask: [n, up to m + m k + q] bool, or None: True removes a key from an anchor's sum.
            The keys are the positives, then the hard negatives row by row, then the queue. An
            anchor's own positive must not be masked. Keys beyond the last column stay in the sum.
        decoupled: whether to remove an anchor's own positive from its sum (Yeh et al. 2022). The
            loss of an anchor without negatives is then 0.
        hardness: beta, 0 or more; 0 for equal weights.

    Returns:
        The mean over the anchors, a scalar.
    """
    keys, row_of = _keys(positives, hard_negatives, queue)
    m = len(positives)
    labels = row_of[label_offset : label_offset + len(anchors)]
    similarities = similarity_matrix(anchors, keys, similarity)
    if positive_similarities is not None:
        similarities = similarities.scatter(1, labels[:, None], positive_similarities[:, None])
    if further_similarities is not None:
        similarities = torch.cat([similarities, further_similarities], dim=1)
        row_of = F.pad(row_of, (0, further_similarities.shape[1]), value=-1)
    logits = similarities / temperature
    if hard_negative_weight != 1.0:
        log_alpha = math.log(hard_negative_weight) if hard_negative_weight > 0 else -math.inf
        own_hard_negatives = row_of == labels[:, None]
        own_hard_negatives[:, :m] = False
        logits = torch.where(own_hard_negatives, logits + log_alpha, logits)
    if negative_mask is not None:
        logits = logits.masked_fill(F.pad(negative_mask, (0, logits.shape[1] - negative_mask.shape[1])), -math.inf)
    if hardness:
        logits = _weighted_by_hardness(logits, labels, hardness)
    return _decoupled_cross_entropy(logits, labels) if decoupled else F.cross_entropy(logits, labels)


def _weighted_by_hardness(logits: Tensor, classes: Tensor, hardness: float) -> Tensor:
    """Add log(x^hardness / mean x^hardness) to the logits log(x) of the negatives of each row.

    Negatives are the columns above -inf other than the row's class.
    """
    negatives = logits.scatter(1, classes[:, None], -math.inf)
    kept = ~negatives.isneginf()
    count = kept.sum(dim=1, keepdim=True)
    powers = hardness * negatives
    log_sums = powers.masked_fill(count == 0, 0).logsumexp(dim=1, keepdim=True)  # finite, so the gradient is finite
    return torch.where(kept, logits + powers - log_sums + count.clamp(min=1).log(), logits)


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
    """Return which negatives are so similar to the anchor that they are probably false negatives.

    DCLR (Zhou et al. 2022) and GISTEmbed (Solatorio 2024) compute them with a fixed encoder.

    Args:
        anchors, positives, hard_negatives, queue, label_offset: see `contrastive_loss`.
        threshold: negatives with a higher cosine are returned. An anchor's own positive and its own
            hard negatives never are.

    Returns:
        [n, m + m k + q] bool, a `negative_mask` of `contrastive_loss`.
    """
    keys, row_of = _keys(positives, hard_negatives, queue)
    rows = row_of[label_offset : label_offset + len(anchors), None]
    return (similarity_matrix(anchors, keys) > threshold) & (row_of != rows)


def _keys(positives: Tensor, hard_negatives: Tensor | None, queue: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the keys of the loss, [m + m k + q, dim], and the row of each, -1 for the queue."""
    parts = [positives, *(part.reshape(-1, part.shape[-1]) for part in (hard_negatives, queue) if part is not None)]
    rows = torch.arange(len(positives), device=positives.device)
    hard_rows = rows.repeat_interleave(0 if hard_negatives is None else hard_negatives.shape[1])
    row_of = F.pad(torch.cat([rows, hard_rows]), (0, 0 if queue is None else len(queue)), value=-1)
    return torch.cat(parts), row_of


def _decoupled_cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """Return the cross-entropy without the true class in the sum. A row without other classes has loss 0."""
    others = logits.scatter(1, classes[:, None], -math.inf)
    alone = others.isneginf().all(dim=1)
    sums = others.masked_fill(alone[:, None], 0).logsumexp(dim=1)  # finite, so the gradient is finite
    return (sums - logits.gather(1, classes[:, None]).squeeze(1)).masked_fill(alone, 0).mean()


def siamese_softmax_loss(first: Tensor, second: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return the classification loss of Sentence-BERT (Reimers and Gurevych 2019, section 3).

    In plain terms: a linear classifier predicts the label of a pair from both embeddings and their
    difference. The loss is the cross-entropy of

        o = softmax(W_t (u, v, |u - v|))

    Args:
        first, second: u and v, [n, dim]; row i of one is paired with row i of the other.
        labels: [n] int64, the class of each pair.
        weights: W_t, [classes, 3 dim]. The equation has no bias.

    Returns:
        The mean over the pairs, a scalar, in float32 if the embeddings are in half precision.
    """
    with torch.autocast(first.device.type, enabled=False):  # it would multiply in half precision
        first, second = at_least_float32(first), at_least_float32(second)
        features = torch.cat([first, second, (first - second).abs()], dim=-1)
        return F.cross_entropy(features @ at_least_float32(weights).T, labels)
