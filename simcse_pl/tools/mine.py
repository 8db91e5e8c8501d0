"""Find hard negatives for pairs: sentences that are similar to the anchor, but not its positives."""

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simcse_pl.data.rows import ReadOptions, iterate_rows, iterate_sentences
from simcse_pl.tools.common import add_columns, add_encoder, column, layout, load_simcse
from simcse_pl.tools.conversion import ConversionStats, check_paths, write_csv
from simcse_pl.tools.language_models import CrossEncoder, rescore
from simcse_pl.tools.sentence_index import MILLION, highest, in_millionths
from simcse_pl.utils.errors import UserError, prefixed, reraise_as
from simcse_pl.utils.tensors import DOCUMENT, QUERY, Encode, finite, unit_vectors
from simcse_pl.utils.terminal import integer, real, tracked

NEAREST, RANDOM = "nearest", "random"
# of an option: its default, and the option without which it would have no effect
_DEPENDENT = {"candidates": (10, "rescore"), "rescore_margin": (0.0, "rescore"), "nearest": (100, "faiss")}
_MAX_SIMILARITIES = 1 << 24  # computed at once, in about 400 MB


@dataclass(frozen=True)
class MiningOptions:
    """How negatives are chosen among the candidates of a pair.

    A candidate is a sentence of the corpus that is not the anchor, and does not form a pair with it in either order.
    Similarities are cosines, rounded to six decimals. Candidates with the same similarity are in the order of the
    corpus.
    """

    negatives: int = 1  # of each pair
    candidates: int = 0  # take up to this many instead, if there are at least `negatives`
    skip_top: int = 0  # leave out this many of the nearest, which are often positives without a label
    margin: float | None = None  # leave out those above the positive's similarity minus this margin
    # Leave out those above the positive's similarity minus this share of its absolute value. 0.05 is TopK-PercPos at
    # 95 % of NV-Retriever (Moreira et al. 2024).
    relative_margin: float | None = None
    max_similarity: float | None = None  # leave out those above it
    min_similarity: float | None = None  # leave out those below it
    choice: str = NEAREST  # take the nearest of the others, or a random sample
    seed: int = 42  # of the sample
    # An index of FAISS, such as `IVF1024,Flat:nprobe=32`, by its index_factory and its parameters: the candidates are
    # the nearest sentences that it finds. None for all sentences.
    faiss: str | None = None
    nearest: int = 100  # how many


def mine(
    encode: Encode,
    pairs: Sequence[tuple[str, str]],
    options: MiningOptions,
    corpus: Sequence[str] | None = None,
    device: str | torch.device = "cpu",
    encode_anchors: Encode | None = None,
) -> tuple[list[tuple[str, ...]], Counter[str]]:
    """Add negatives to pairs. A terminal shows a progress bar.

    Args:
        encode: function from sentences to vectors [n, dim].
        pairs: anchors and positives. An anchor may have several.
        options: how to choose negatives.
        corpus: sentences to choose from; None for all positives.
        device: where the vectors of all sentences are compared, in float32.
        encode_anchors: in place of `encode`, for the anchors.

    Returns:
        Rows of anchor, positive and negatives, in the order of the pairs, without pairs that have too few; and the
        number of candidates that each option left out, by its name. A candidate counts for the first of them.
    """
    candidates = list(dict.fromkeys(positive for _, positive in pairs) if corpus is None else dict.fromkeys(corpus))
    others = _Vectors(encode, [*candidates, *chain.from_iterable(pairs)], device)  # the candidates are the first ones
    anchors = _Vectors(encode_anchors, (anchor for anchor, _ in pairs), device) if encode_anchors else others
    partners = defaultdict[str, set[int]](set)  # numbers of the sentences that are no negatives of a sentence
    for pair in pairs:
        for sentence in pair:
            partners[sentence].update(others.positions[one] for one in pair)
    counts, rows = Counter[str](), list[tuple[str, ...]]()
    size, find = _finder(others.vectors[: len(candidates)], options)
    for start in tracked(range(0, len(pairs), size), "mining"):
        part = pairs[start : start + size]
        anchor_vectors = anchors.of(anchor for anchor, _ in part)
        positive_vectors = others.of(positive for _, positive in part)
        numbers, similarities = find(anchor_vectors)
        excluded = [(row, number) for row, (anchor, _) in enumerate(part) for number in partners[anchor]]
        excluded = [(row, number) for row, number in excluded if number < len(candidates)]
        allowed = _allowed(similarities, numbers, excluded)
        positive_similarities = in_millionths((anchor_vectors * positive_vectors).sum(dim=1))
        for name, left_out in _filters(options, similarities, positive_similarities[:, None], allowed):
            counts[name] += int((allowed & left_out).sum())
            allowed &= ~left_out
        if options.choice == RANDOM:
            similarities = _random_scores(options.seed, start, *allowed.shape).to(allowed.device)
        chosen = highest(similarities, options.candidates or options.negatives, allowed)
        positions = chosen if numbers is None else numbers.gather(1, chosen)
        counts_allowed = allowed.sum(dim=1).cpu().tolist()
        for pair, count, numbers_of_pair in zip(part, counts_allowed, positions.cpu().tolist(), strict=True):
            if count >= options.negatives:
                rows.append((*pair, *(candidates[number] for number in numbers_of_pair[:count])))
    return rows, counts


class _Vectors:
    """The unit vectors of sentences, each encoded once; UserError is raised if one is not finite."""

    def __init__(self, encode: Encode, sentences: Iterable[str], device: str | torch.device) -> None:
        self.positions = {sentence: position for position, sentence in enumerate(dict.fromkeys(sentences))}
        self.vectors = finite(unit_vectors(encode([*self.positions]).float().to(device)))

    def of(self, sentences: Iterable[str]) -> Tensor:
        """Return the vectors of some of the sentences, [n, dim]."""
        positions = torch.tensor([self.positions[sentence] for sentence in sentences])
        return self.vectors[positions.to(self.vectors.device)]


def _finder(corpus: Tensor, options: MiningOptions) -> tuple[int, Callable[[Tensor], tuple[Tensor | None, Tensor]]]:
    """Return for how many anchors at once candidates are found, and a function from anchors [n, dim].

    The function returns the numbers of the candidates in order, [n, nearest], or None for all; and their cosines with
    the anchors in millionths, [n, nearest] or [n, candidates]. A candidate that FAISS has not found has the number -1.
    """
    if options.faiss is None:
        return max(1, _MAX_SIMILARITIES // len(corpus)), lambda anchors: (None, in_millionths(anchors @ corpus.T))
    vectors, (factory, _, parameters) = corpus.cpu().numpy(), options.faiss.partition(":")
    with reraise_as(f"faiss={options.faiss}, an index of the package faiss-cpu"):
        import faiss

        index = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
        faiss.ParameterSpace().set_index_parameters(index, parameters)  # type: ignore[arg-type]
        index.train(vectors)
        index.add(vectors)

    def find(anchors: Tensor) -> tuple[Tensor, Tensor]:
        numbers = torch.from_numpy(index.search(anchors.cpu().numpy(), options.nearest)[1])
        numbers = numbers.sort(dim=1).values.to(corpus.device)
        return numbers, in_millionths((corpus[numbers] @ anchors[:, :, None]).squeeze(2))

    return max(1, _MAX_SIMILARITIES // (options.nearest * vectors.shape[1])), find


def _allowed(similarities: Tensor, numbers: Tensor | None, excluded: Sequence[tuple[int, int]]) -> Tensor:
    """Return which candidates of each row are neither missing nor excluded, as pairs of a row and a number."""
    row, column = torch.tensor(excluded, dtype=torch.int64).view(-1, 2).T.to(similarities.device)
    allowed = torch.ones_like(similarities, dtype=torch.bool)
    if numbers is not None:
        allowed = numbers >= 0
        which, column = (numbers[row] == column[:, None]).nonzero(as_tuple=True)
        row = row[which]
    allowed[row, column] = False
    return allowed


def _filters(
    options: MiningOptions, similarities: Tensor, positive_similarity: Tensor, allowed: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Yield the name of each option, and the candidates that it leaves out, [pairs, candidates] bool.

    One mask at a time is in memory.
    """
    if options.skip_top:
        nearest = highest(similarities, options.skip_top, allowed)
        yield "skip_top", torch.zeros_like(allowed).scatter(1, nearest, value=True)
    if options.margin is not None:
        yield "margin", similarities > positive_similarity - round(options.margin * MILLION)
    if options.relative_margin is not None:
        exact = positive_similarity.double()
        yield "relative_margin", similarities > exact * (1 - options.relative_margin * exact.sign())
    if options.max_similarity is not None:
        yield "max_similarity", similarities > round(options.max_similarity * MILLION)
    if options.min_similarity is not None:
        yield "min_similarity", similarities < round(options.min_similarity * MILLION)


def _random_scores(seed: int, first: int, pairs: int, candidates: int) -> Tensor:
    """Return random scores [pairs, candidates], which depend on the seed and the number of the pair alone."""
    rows = []
    for number in range(first, first + pairs):
        generator = torch.Generator().manual_seed(random.Random(f"{seed} {number}").getrandbits(62))
        rows.append(torch.randint(1 << 32, (candidates,), generator=generator))
    return torch.stack(rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, prompt="the anchors (default: query, if the encoder has it); others have its prompt document")
    parser.add_argument("pairs", metavar="PAIRS", help="pairs of anchor and positive: .csv, .tsv, .jsonl or .parquet")
    parser.add_argument("out", metavar="OUT", help="output file (.csv): anchor, positive, negative_1, negative_2, ...")
    add_columns(parser)
    text = "error: stop at an invalid row; drop: leave out invalid rows, and count them (default: error)"
    parser.add_argument("--on-invalid-row", choices=("error", "drop"), default="error", help=text)
    text = "file of the sentences to choose negatives from (default: the positives of all pairs)"
    parser.add_argument("--corpus", metavar="FILE", help=text)
    parser.add_argument("--corpus-column", type=column, metavar="COLUMN", help="column of --corpus, if it has several")
    text = "negatives per pair (default: %(default)s)"
    parser.add_argument("--negatives", type=integer, default=1, metavar="N", help=text)
    text = "leave out the N nearest sentences, which are often unlabelled positives (default: %(default)s)"
    parser.add_argument("--skip-top", type=partial(integer, least=0), default=0, metavar="N", help=text)
    text = "leave out sentences whose cosine with the anchor is above that of the positive minus X"
    parser.add_argument("--margin", type=real, metavar="X", help=text)
    text = "leave out sentences whose cosine is above that of the positive, p, minus X |p|, for example X = 0.05"
    parser.add_argument("--relative-margin", type=real, metavar="X", help=text)
    parser.add_argument("--max-similarity", type=real, metavar="X", help="leave out sentences whose cosine is above X")
    parser.add_argument("--min-similarity", type=real, metavar="X", help="leave out sentences whose cosine is below X")
    text = "choose the nearest of the remaining sentences, or a random sample (default: %(default)s)"
    parser.add_argument("--choice", choices=(NEAREST, RANDOM), default=NEAREST, help=text)
    text = "choose among the nearest sentences that an index of FAISS finds, such as IVF1024,Flat:nprobe=32, or Flat"
    parser.add_argument("--faiss", metavar="INDEX", help=text)
    parser.add_argument("--nearest", type=integer, default=100, metavar="N", help="how many (default: %(default)s)")
    text = "score the candidates by this cross-encoder, a sequence classifier with one logit, and write the scores"
    parser.add_argument("--rescore", metavar="MODEL", help=text)
    text = "with --rescore, leave out candidates that score above the positive minus X (default: %(default)s)"
    parser.add_argument("--rescore-margin", type=real, default=0.0, metavar="X", help=text)
    text = "with --rescore, how many candidates of a pair are scored (default: %(default)s)"
    parser.add_argument("--candidates", type=integer, default=10, metavar="N", help=text)
    parser.add_argument("--seed", type=int, default=42, help="seed of --choice random (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    out = Path(arguments.out)
    check_paths([Path(file) for file in (arguments.pairs, arguments.corpus) if file and Path(file).exists()], out)
    for option, (default, needed) in _DEPENDENT.items():
        if getattr(arguments, option) != default and getattr(arguments, needed) is None:
            raise UserError(f"--{option.replace('_', '-')}: it needs --{needed}")
    arguments.candidates = max(arguments.candidates, arguments.negatives) if arguments.rescore else 0
    options = MiningOptions(**{field.name: getattr(arguments, field.name) for field in fields(MiningOptions)})
    reading: Any = {"on_invalid_row": arguments.on_invalid_row, **vars(layout(arguments))}
    rows = iterate_rows(arguments.pairs, ReadOptions(columns=arguments.columns, **reading), first=2)
    pairs, corpus = [(row[0], row[1]) for row, _ in rows], None
    if arguments.corpus:
        with prefixed("--corpus, --corpus-column"):
            corpus = list(iterate_sentences(arguments.corpus, arguments.corpus_column, **reading))
    simcse = load_simcse(arguments)
    encode = partial(simcse.encode, normalize_to_unit=False, progress=True)
    names = simcse.prompt_if_any(DOCUMENT), arguments.prompt_name or simcse.prompt_if_any(QUERY)
    encode_others, encode_anchors = (partial(encode, prompt_name=name) for name in names)
    mined, counts = mine(encode_others, pairs, options, corpus, simcse.device, encode_anchors if any(names) else None)
    numbers = range(1, options.negatives + 1)
    columns = ["anchor", "positive", *(f"negative_{number}" for number in numbers)]
    if arguments.rescore:
        score = CrossEncoder(arguments.rescore, simcse.device, arguments.batch_size or 32).score
        mined, counts["rescore"] = rescore(score, mined, options.negatives, arguments.rescore_margin)
        columns += ["positive_score", *(f"negative_{number}_score" for number in numbers)]
    too_few = len(pairs) - len(mined)
    write_csv(out, columns, mined, ConversionStats({"without enough negatives": too_few}))
    for name, number in counts.items():
        print(f"--{name.replace('_', '-')} left out {number / len(pairs):.1f} sentences per pair")
    print(f"{len(mined)} rows in {out}; {too_few} pairs had too few negatives")
