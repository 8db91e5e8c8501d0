"""Averaged word vectors (the "GloVe (avg.)" rows of the paper's Tables 5 and E.1), called as an encoder is."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from simcse_pl.utils.errors import UserError
from simcse_pl.utils.progress import progress_bar, tracked
from simcse_pl.utils.tensors import unit_vectors
from simcse_pl.utils.text_files import Unreadable, check_is_file, read_lines
from simcse_pl.utils.validation import check_sentences

_LINES_AT_A_TIME = 4096
_SMOOTHING = 1e-3  # a of Arora et al. 2017
_WIDEST = 10_000  # values of a word: no file has more, and each column of a table takes memory

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
    """The words of a sentence, much as Stanford's tokenizer, which GloVe was trained with, splits English.

    Punctuation stands apart, and so do clitics; hyphenated words, numbers and abbreviations stay whole, and
    typographic quotation marks become straight ones.

    Examples:
        >>> split_words("She doesn't like O'Neil's 2.5-hour films...")
        ['She', 'does', "n't", 'like', 'O', "'", 'Neil', "'s", '2.5-hour', 'films', '...']
    """
    return [match.group() for match in _WORD.finditer(sentence.translate(_STRAIGHT_QUOTES))]


class WordVectors:
    """The (weighted) average of a sentence's word vectors.

    Every word is looked up as written and then in lower case; a word that has no vector is left out, and a
    sentence of no known word is the zero vector.

    Args:
        rows: which row of `vectors` is a word's.
        vectors: [words, dim] float32.
        weights: [words], what each vector is multiplied by; 1 where None. The sum is divided by the number
            of known words, not by the sum of their weights (Algorithm 1 of Arora et al. 2017).
        normalize: scale the vectors that `encode` gives, but zero ones, to length 1.

    Examples:
        >>> glove = WordVectors.from_file("glove.840B.300d.txt", progress=True)
        >>> glove.encode(["A cat sat.", "Dogs bark."]).shape
        torch.Size([2, 300])
    """

    def __init__(
        self, rows: dict[str, int], vectors: Tensor, weights: Tensor | None = None, normalize: bool = False
    ) -> None:
        self.rows = rows
        self.vectors = vectors
        self.weights = torch.ones(len(vectors)) if weights is None else weights
        self.normalize = normalize

    @property
    def dim(self) -> int:
        """The width of a vector."""
        return self.vectors.shape[1]

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        word_counts: str | Path | None = None,
        normalize: bool = False,
        progress: bool = False,
    ) -> "WordVectors":
        """Read a text file of word vectors: GloVe's, or word2vec's with `count dim` in its first line.

        Words may hold spaces, as some of GloVe's 840B do; of a word's several vectors the first counts.

        Args:
            path: `word v1 v2 ...` a line, in UTF-8, gzipped if its name ends in .gz.
            word_counts: `word count` a line, for smooth inverse frequency (Arora et al. 2017): a word w weighs
                a / (a + p(w)), with p(w) its count over the sum of all; a word without a count weighs 1.
            normalize: scale the vectors that `encode` gives, but zero ones, to length 1.
            progress: show a progress bar on standard error.

        Raises:
            UserError: no such file, or one that is damaged or cut short (it names the line).
        """
        counts = None if word_counts is None else _read_counts(Path(word_counts))
        rows, vectors = _read_vectors(Path(path), progress)
        weights = None if counts is None else _inverse_frequencies(rows, len(vectors), counts)
        return cls(rows, vectors, weights, normalize)

    def encode(
        self,
        sentences: Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        progress: bool = False,
        bf16: bool = False,
    ) -> Tensor:
        """Vectors for sentences, in their order, called as SentenceEncoder.encode is.

        Args:
            sentences: any number of them, none included.
            batch_size: sentences that are averaged at once; 1024 where None.
            normalize: scale them to length 1, which word vectors with `normalize` always do.
            progress: show a progress bar on standard error.
            bf16: refused.

        Returns:
            [n, dim] float32 on the CPU.

        Raises:
            UserError: a string where a list of them is meant, a sentence that is no string, a batch size out of
                range, or bf16.
        """
        if bf16:
            raise UserError("bf16=true: word vectors are averaged in float32")
        batch_size = 1024 if batch_size is None else batch_size
        check_sentences(sentences, batch_size)
        vectors = torch.empty(len(sentences), self.dim)
        starts = range(0, len(sentences), batch_size)
        for start in tracked(starts, "averaging", shown=progress):
            batch = slice(start, start + batch_size)
            vectors[batch] = self._average(sentences[batch])
        return unit_vectors(vectors) if normalize or self.normalize else vectors

    def _average(self, sentences: Sequence[str]) -> Tensor:
        known = [[self.rows[word] for word in _known(split_words(sentence), self.rows)] for sentence in sentences]
        lengths = torch.tensor([len(rows) for rows in known])
        rows = torch.tensor([row for rows in known for row in rows], dtype=torch.long)
        sums = F.embedding_bag(
            rows, self.vectors, lengths.cumsum(0) - lengths, mode="sum", per_sample_weights=self.weights[rows]
        )
        return sums / lengths.clamp(min=1).unsqueeze(1)


def _known(words: Iterable[str], table: dict[str, int] | dict[str, float]) -> Iterator[str]:
    """Those in the table, each as it stands there: as written, else in lower case."""
    for word in words:
        if word in table:
            yield word
        elif (lower := word.lower()) in table:
            yield lower


def _inverse_frequencies(rows: dict[str, int], size: int, counts: dict[str, float]) -> Tensor:
    """[size], a / (a + p(w)) in every word's row."""
    total = sum(counts.values())
    weights = np.ones(size, dtype=np.float32)
    for word, row in rows.items():
        for counted in _known([word], counts):
            weights[row] = _SMOOTHING / (_SMOOTHING + counts[counted] / total)
    return torch.from_numpy(weights)


def _text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without spaces at their ends."""
    check_is_file(path)
    for number, line in enumerate(read_lines(path, packed=path.suffix.lower() == ".gz"), 1):
        if isinstance(line, Unreadable):
            raise UserError(f"{path}, line {number}: {line.problem}")
        yield number, line.rstrip(" ")


def _read_counts(path: Path) -> dict[str, float]:
    counts: dict[str, float] = {}
    for number, line in _text_lines(path):
        if not line.strip():
            continue
        try:
            word, text = line.rsplit(maxsplit=1)
            count = float(text)
        except ValueError:
            count = math.nan
        if not 0 <= count < math.inf:
            raise UserError(f"{path}, line {number}: no word and its count but {line[:40]!r}")
        counts[word] = counts.get(word, 0.0) + count
    if not sum(counts.values()):
        raise UserError(f"{path} counts no words")
    return counts


def _read_vectors(path: Path, progress: bool) -> tuple[dict[str, int], Tensor]:
    lines = _text_lines(path)
    first = next(lines, (1, ""))[1]
    announced = re.fullmatch(r"([0-9]{1,18})[ \t]+([0-9]{1,18})", first)  # word2vec's first line
    number, line = next(lines, (2, "")) if announced else (1, first)
    dim = int(announced[2]) if announced else line.count(" ")
    if dim > _WIDEST:
        raise UserError(f"{path}, line {number}: {dim} values; a word has {_WIDEST} at most")
    if dim < 1 or line.count(" ") != dim:  # here, that the first word holds no space can be relied on
        wanted = f"a word and its {dim} values" if dim else "`word v1 v2 ...`"
        raise UserError(f"{path}, line {number}: {wanted} should stand here, not {line[:40]!r}")
    lines = itertools.chain([(number, line)], lines)
    rows: dict[str, int] = {}
    vectors = np.empty((0, dim), dtype=np.float32)
    size = 0
    packed = path.suffix.lower() == ".gz"
    with progress_bar(shown=progress) as bar:
        task = bar.add_task(f"reading {path.name}", total=None if packed else path.stat().st_size)
        while block := list(itertools.islice(lines, _LINES_AT_A_TIME)):
            words, values = _parse(path, block, dim)
            if size + len(block) > len(vectors):  # in place: a list of blocks would be in memory twice when joined
                vectors.resize((size + len(block) + size // 32, dim), refcheck=False)
            vectors[size : size + len(block)] = values
            for row, word in enumerate(words, size):
                rows.setdefault(word, row)
            size += len(block)
            bar.advance(task, sum(len(line) + 1 for _, line in block))
    if announced and size != int(announced[1]):
        raise UserError(f"{path}: {size} words, and its first line says {announced[1]}: is it cut short?")
    vectors.resize((size, dim), refcheck=False)
    return rows, torch.from_numpy(vectors)


def _parse(path: Path, block: list[tuple[int, str]], dim: int) -> tuple[list[str], NDArray[np.float32]]:
    """The words of some lines, and their vectors [lines, dim]."""
    words, values = [], []
    for number, line in block:
        word, _, rest = line.partition(" ")
        if rest.count(" ") != dim - 1:  # a word with spaces in it, or too few values
            word, *numbers = line.rsplit(" ", dim)
            if len(numbers) != dim:
                raise UserError(f"{path}, line {number}: {len(numbers)} values where there should be {dim}")
            rest = " ".join(numbers)
        words.append(word)
        values.append(rest)
    vectors = _floats(values, dim)
    if vectors is None:
        number = next(number for (number, _), line in zip(block, values, strict=True) if _floats([line], dim) is None)
        raise UserError(f"{path}, line {number}: a value is no finite number")
    return words, vectors


def _floats(lines: list[str], dim: int) -> NDArray[np.float32] | None:
    """Numbers with spaces between, as [lines, dim]; None where one is not a finite number.

    Arrow's reader of csv is several times faster at this than float() and numpy are.
    """
    names = [str(i) for i in range(dim)]
    try:
        table = pyarrow.csv.read_csv(
            pyarrow.py_buffer("\n".join(lines).encode()),
            read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.float32()), null_values=[]
            ),
        )
    except pyarrow.ArrowInvalid:
        return None
    if len(table) != len(lines):
        return None
    vectors = np.stack([column.to_numpy() for column in table.columns], axis=1)
    return vectors if np.isfinite(vectors).all() else None
