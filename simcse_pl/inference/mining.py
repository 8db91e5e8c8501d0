"""Hard-negative mining: for each pair, similar sentences that are probably not positives."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from simcse_pl.models.protocols import Encode
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.terminal import tracked

NEAREST, RANDOM = "nearest", "random"
_MAX_SIMILARITIES = 1 << 24  # computed at once, in about 400 MB
_SCALE = 1_000_000  # of similarities as integers: float32 rounds the seventh decimal
_RANGES = {"margin": (0, 2), "relative_margin": (0, 1), "max_similarity": (-1, 1), "min_similarity": (-1, 1)}


@dataclass(frozen=True)
class MiningOptions:
    """How negatives are chosen among the candidates of a pair.

    A candidate is a sentence of the corpus that is not the anchor, and does not form a pair with it in either order.
    Similarities are cosines, rounded to six decimals. Candidates with the same similarity are in the order of the
    corpus.

    Args:
        negatives: the number of negatives of each pair.
        skip_top: leave out this many of the nearest candidates, which are often positives without a label.
        margin: leave out candidates whose similarity to the anchor is above that of the positive minus this margin.
        relative_margin: leave out candidates whose similarity is above (1 - relative_margin) times the positive's;
            0.05 is TopK-PercPos at 95 % of NV-Retriever (Moreira et al. 2024).
        max_similarity, min_similarity: leave out candidates with a higher or a lower similarity.
        choice: `nearest` takes the nearest of the remaining candidates, `random` a random sample of them.
        seed: seed of the sample.

    Raises:
        UserError: a value is out of range.
    """

    negatives: int = 1
    skip_top: int = 0
    margin: float | None = None
    relative_margin: float | None = None
    max_similarity: float | None = None
    min_similarity: float | None = None
    choice: str = NEAREST
    seed: int = 42

    def __post_init__(self) -> None:
        if (low := self.min_similarity) is not None and (high := self.max_similarity) is not None and low > high:
            raise UserError(f"min_similarity={low}: it must be at most max_similarity={high}")
        if self.negatives < 1:
            raise UserError(f"negatives={self.negatives}: it must be at least 1")
        if self.skip_top < 0:
            raise UserError(f"skip_top={self.skip_top}: it must be 0 or more")
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UserError(f"{name}={value}: it must be {least} to {most}")
        if self.choice not in (NEAREST, RANDOM):
            raise UserError(f"choice={self.choice}: choose {NEAREST} or {RANDOM}")


@dataclass
class MiningCounts:
    """What happened to the candidates and the pairs.

    Args:
        pairs: pairs read.
        too_few: pairs without enough negatives, which are left out.
        left_out: candidates that each option left out, by its name; a candidate counts for the first of them.
        positives, negatives: similarities to the anchor of the positives and the negatives of the pairs that were kept.
    """

    pairs: int = 0
    too_few: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    positives: list[float] = field(default_factory=list)
    negatives: list[float] = field(default_factory=list)


def mine(
    encode: Encode,
    pairs: Sequence[tuple[str, str]],
    options: MiningOptions,
    corpus: Sequence[str] | None = None,
) -> tuple[list[tuple[str, ...]], MiningCounts]:
    """Add negatives to pairs. A terminal shows a progress bar.

    Args:
        encode: function from sentences to vectors [n, dim].
        pairs: anchors and positives. An anchor may have several.
        options: see MiningOptions.
        corpus: sentences to choose from; None for all positives.

    Returns:
        Rows of anchor, positive and negatives, in the order of the pairs; and what happened to the candidates.

    Raises:
        UserError: there are no pairs, or fewer distinct candidates than negatives.
    """
    if not pairs:
        raise UserError("there are no pairs")
    candidates = list(dict.fromkeys(positive for _, positive in pairs) if corpus is None else dict.fromkeys(corpus))
    if len(candidates) < options.negatives:
        raise UserError(f"negatives={options.negatives}: there are only {len(candidates)} different candidates")
    sentences = list(dict.fromkeys([*candidates, *(sentence for pair in pairs for sentence in pair)]))
    place = {sentence: number for number, sentence in enumerate(sentences)}  # the candidates are the first ones
    vectors = unit_vectors(encode(sentences).float().cpu())
    if not vectors.isfinite().all():
        raise UserError("the encoder returns vectors that are not finite")
    excluded: dict[str, set[int]] = {}
    for anchor, positive in pairs:
        for one, other in ((anchor, positive), (positive, anchor)):
            excluded.setdefault(one, {place[one]}).add(place[other])
    counts = MiningCounts(pairs=len(pairs))
    rows = []
    size = max(1, _MAX_SIMILARITIES // len(candidates))
    for start in tracked(range(0, len(pairs), size), "mining"):
        chunk = pairs[start : start + size]
        anchors = vectors[[place[anchor] for anchor, _ in chunk]]
        own = _rounded((anchors * vectors[[place[positive] for _, positive in chunk]]).sum(dim=1))
        similarities = _rounded(anchors @ vectors[: len(candidates)].T)
        allowed = torch.ones_like(similarities, dtype=torch.bool)
        for row, (anchor, _) in enumerate(chunk):
            allowed[row, [number for number in excluded[anchor] if number < len(candidates)]] = False
        for name, left_out in _filters(options, similarities, own, allowed):
            counts.left_out[name] = counts.left_out.get(name, 0) + int((allowed & left_out).sum())
            allowed &= ~left_out
        scores = similarities
        if options.choice == RANDOM:
            scores = _random_scores(options.seed, start, *scores.shape)
        chosen, enough = _top(scores, allowed, options.negatives), allowed.sum(dim=1) >= options.negatives
        counts.too_few += int((~enough).sum())
        for row, pair in enumerate(chunk):
            if enough[row]:
                found = chosen[row].tolist()
                rows.append((*pair, *(candidates[number] for number in found)))
                counts.positives.append(int(own[row]) / _SCALE)
                counts.negatives += (similarities[row, found] / _SCALE).tolist()
    return rows, counts


def _rounded(similarities: Tensor) -> Tensor:
    """Return similarities in millionths, int32, so that most rounding errors do not order equal ones."""
    return (similarities * _SCALE).round_().int()


def _filters(
    options: MiningOptions, similarities: Tensor, own: Tensor, allowed: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Yield the name of each option, and the candidates that it leaves out, [pairs, candidates] bool."""
    if options.skip_top:
        nearest = _top(similarities, allowed, options.skip_top)
        yield "skip_top", torch.zeros_like(allowed).scatter(1, nearest, value=True)
    if options.margin is not None:
        yield "margin", similarities > own[:, None] - round(options.margin * _SCALE)
    if options.relative_margin is not None:
        yield "relative_margin", similarities > (own.double() * (1 - options.relative_margin))[:, None]
    if options.max_similarity is not None:
        yield "max_similarity", similarities > round(options.max_similarity * _SCALE)
    if options.min_similarity is not None:
        yield "min_similarity", similarities < round(options.min_similarity * _SCALE)


def _top(scores: Tensor, allowed: Tensor, count: int) -> Tensor:
    """Return the positions of the allowed candidates with the highest integer scores, the first ones among equals.

    They are [pairs, count]; fewer if there are fewer candidates.
    """
    candidates = scores.shape[1]
    keys = scores.long() * candidates + torch.arange(candidates - 1, -1, -1)  # all different: topk has one result
    keys.masked_fill_(~allowed, torch.iinfo(torch.int64).min)
    found: Tensor = keys.topk(min(count, candidates), dim=1).indices
    return found


def _random_scores(seed: int, first: int, pairs: int, candidates: int) -> Tensor:
    """Return random scores [pairs, candidates], which depend on the seed and the number of the pair alone."""
    rows = []
    for number in range(first, first + pairs):
        generator = torch.Generator().manual_seed(random.Random(f"{seed} {number}").getrandbits(62))
        rows.append(torch.randint(1 << 32, (candidates,), generator=generator))
    return torch.stack(rows)
