"""Averaged word vectors (the "GloVe (avg.)" rows of the paper's Tables 5 and E.1), with the interface of an encoder."""

import itertools
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import read_lines
from simcse_pl.utils.sentences import checked_sentences
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.terminal import tracked

_SMOOTHING = 1e-3  # a of Arora et al. 2017

_WORD = re.compile(
    r"""(?:[^\W\d_]\.){2,}             # U.S., e.g.
      | \d+(?:[.,:/]\d+)+(?:-\w+)*     # 1,000, 10:30, 2.5-hour
      | \w+(?=n't\b) | n't\b           # do and n't
      | '(?:s|m|d|ll|re|ve)\b          # the clitic of she's
      | \w+(?:-\w+)*                   # word, mother-in-law
      | ([^\w\s])\1*                   # a mark, or a run of it: . ... --""",
    re.IGNORECASE | re.VERBOSE,
)
_STRAIGHT_QUOTES = str.maketrans("‘’“”", "''\"\"")


def split_words(sentence: str) -> list[str]:
    """Split a sentence into words. GloVe was trained with Stanford's tokenizer, and this one is similar.

    Punctuation and clitics become words of their own. Hyphenated words, numbers and abbreviations stay
    whole, and typographic quotation marks become straight ones.

    Examples:
        >>> split_words("She doesn't like O'Neil's 2.5-hour films...")
        ['She', 'does', "n't", 'like', 'O', "'", 'Neil', "'s", '2.5-hour', 'films', '...']
    """
    return [match.group() for match in _WORD.finditer(sentence.translate(_STRAIGHT_QUOTES))]


class WordVectors:
    """The (weighted) average of a sentence's word vectors.

    Each word is looked up as written, then in lower case. Words without a vector are left out. A
    sentence without any known word gets the zero vector.

    Args:
        rows: the row of `vectors` for each word.
        vectors: [words, dim] float32.
        weights: [words], the factor of each vector. The sum is divided by the number of known words, not by
            the sum of their weights (Algorithm 1 of Arora et al. 2017).
        normalize: whether `encode` scales vectors to length 1, except zero vectors.

    Examples:
        >>> glove = WordVectors.from_file("glove.840B.300d.txt")
        >>> glove.encode(["A cat sat.", "Dogs bark."]).shape
        torch.Size([2, 300])
    """

    def __init__(self, rows: dict[str, int], vectors: Tensor, weights: Tensor, normalize: bool = False) -> None:
        self.rows = rows
        self.vectors = vectors
        self.weights = weights
        self.normalize = normalize

    @property
    def dim(self) -> int:
        """Return the number of dimensions of a vector."""
        return self.vectors.shape[1]

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        word_counts: str | Path | None = None,
        normalize: bool = False,
    ) -> "WordVectors":
        """Read a text file of word vectors: GloVe's, or word2vec's with `count dim` in its first line.

        Words may contain spaces, as in GloVe's 840B. If a word occurs twice, its first vector counts. A
        terminal shows a progress bar.

        Args:
            path: a file with `word v1 v2 ...` per line, in UTF-8; gzipped if its name ends in .gz.
            word_counts: a file with `word count` per line, for smooth inverse frequency (Arora et al.
                2017). The weight of a word w is a / (a + p(w)), where p(w) is its count over the sum of
                all. A word without a count has weight 1.
            normalize: whether `encode` scales vectors to length 1, except zero vectors.

        Raises:
            UserError: a file does not exist, or a line of it is damaged.
        """
        counts: Counter[str] = Counter()
        if word_counts is not None:
            with reraise_as(f"{word_counts}: each line must be a word and its count"):
                for word, count in (
                    line.rsplit(maxsplit=1) for line in read_lines(Path(word_counts)) if line.strip(" ")
                ):
                    counts[word] += int(count)
        rows, vectors = _read_vectors(Path(path))
        total, weights = sum(counts.values()), np.ones(len(vectors), dtype=np.float32)
        for word, row in rows.items():
            for counted in _known([word], counts):
                weights[row] = _SMOOTHING / (_SMOOTHING + counts[counted] / total)
        return cls(rows, vectors, torch.from_numpy(weights), normalize)

    def encode(
        self,
        sentences: Sequence[str],
        batch_size: int | None = None,
        progress: bool = False,
        bf16: bool = False,
        normalize: bool | None = None,
    ) -> Tensor:
        """Return vectors [n, dim] for sentences in order, as SentenceEncoder.encode does. A batch has 1024 by default.

        Word vectors are averaged in float32, also with `bf16`.
        """
        batch_size = 1024 if batch_size is None else batch_size
        sentences = checked_sentences(sentences)
        vectors = torch.empty(len(sentences), self.dim)
        for start in tracked(range(0, len(sentences), batch_size), "averaging", shown=progress):
            batch = sentences[start : start + batch_size]
            known = [[self.rows[word] for word in _known(split_words(sentence), self.rows)] for sentence in batch]
            lengths = torch.tensor([len(rows) for rows in known])
            rows, begins = torch.tensor([*itertools.chain(*known)], dtype=torch.long), lengths.cumsum(0) - lengths
            sums = F.embedding_bag(rows, self.vectors, begins, mode="sum", per_sample_weights=self.weights[rows])
            vectors[start : start + batch_size] = sums / lengths.clamp(min=1).unsqueeze(1)
        return unit_vectors(vectors) if (self.normalize if normalize is None else normalize) else vectors


def _known(words: Iterable[str], table: Mapping[str, float]) -> Iterator[str]:
    """Yield the words in a table: as written, or else in lower case."""
    for word in words:
        if word in table:
            yield word
        elif (lower := word.lower()) in table:
            yield lower


def _read_vectors(path: Path) -> tuple[dict[str, int], Tensor]:
    lines = (line.rstrip(" ") for line in read_lines(path))
    line = next(lines, "")
    announced = re.fullmatch(r"([0-9]+)[ \t]+([0-9]+)", line)  # word2vec's first line
    if announced:
        line = next(lines, "")
    dim = line.count(" ")  # the first word contains no space
    rows: dict[str, int] = {}
    vectors = array("f")  # grows in place: joining a list of blocks would need the memory twice
    size = 0
    with reraise_as(f"{path}: each line must be a word and {dim} numbers"):
        for size, text in enumerate(tracked(itertools.chain([line], lines), f"reading {path.name}"), 1):
            word, *values = text.rsplit(" ", dim)  # a word may contain spaces
            rows.setdefault(word, size - 1)
            vectors.extend(map(float, values))
    if not dim or len(vectors) != size * dim or (announced and size != int(announced[1])):
        raise UserError(f"{path} is damaged or cut short: it must have a word and {dim} numbers per line")
    return rows, torch.frombuffer(vectors, dtype=torch.float32).view(size, dim)
