"""Averaged word vectors (the "GloVe (avg.)" rows of the paper's Tables 5 and E.1), with the interface of an encoder."""

import itertools
import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import read_lines
from simcse_pl.utils.tensors import checked_batch_size, unit_vectors
from simcse_pl.utils.terminal import tracked
from simcse_pl.utils.text import checked_sentences

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


class AveragedVectors(ABC):
    """The average of the vectors of a sentence's words or tokens; zeros if it has none.

    Args:
        vectors: [words or tokens, dim] float32.
        normalize: whether `encode` scales vectors to length 1, except zero vectors.
    """

    prompts: Mapping[str | None, str] = {}  # by name, texts before a sentence; None is for those without a name

    def __init__(self, vectors: Tensor, normalize: bool = False) -> None:
        self.vectors, self.normalize = vectors, normalize

    @property
    def dim(self) -> int:
        """Return the number of dimensions of a vector."""
        return self.vectors.shape[1]

    @abstractmethod
    def rows_of(self, sentences: list[str]) -> list[list[int]]:
        """Return the rows of `vectors` that are averaged for each sentence."""

    def encode(
        self,
        sentences: Sequence[str],
        batch_size: int | None = None,
        progress: bool = False,
        bf16: bool = False,
        normalize: bool | None = None,
        prompt_name: str | None = None,
    ) -> Tensor:
        """Return vectors [n, dim] for sentences in order, as SentenceEncoder.encode does. A batch has 1024 by default.

        Vectors are averaged in float32, also with `bf16`. Without any `prompts`, a prompt's name is ignored.
        """
        batch_size = checked_batch_size(batch_size, 1024)
        if self.prompts and prompt_name not in {None, *self.prompts}:
            names = ", ".join(filter(None, self.prompts))
            raise UserError(f"prompt_name={prompt_name}: the encoder has no such prompt; it has {names}")
        sentences = [self.prompts.get(prompt_name, "") + text for text in checked_sentences(sentences)]
        vectors = torch.empty(len(sentences), self.dim)
        for start in tracked(range(0, len(sentences), batch_size), "averaging", shown=progress):
            known = self.rows_of(sentences[start : start + batch_size])
            lengths = torch.tensor([len(rows) for rows in known])
            rows, begins = torch.tensor([*itertools.chain(*known)], dtype=torch.long), lengths.cumsum(0) - lengths
            sums = F.embedding_bag(rows, self.vectors, begins, mode="sum")
            vectors[start : start + batch_size] = sums / lengths.clamp(min=1).unsqueeze(1)
        return unit_vectors(vectors) if (self.normalize if normalize is None else normalize) else vectors


class WordVectors(AveragedVectors):
    """The average of a sentence's word vectors.

    Each word is looked up as written, then in lower case. Words without a vector are left out.

    Args:
        rows: the row of `vectors` for each word.
        vectors, normalize: see AveragedVectors.

    Examples:
        >>> glove = WordVectors.from_file("glove.840B.300d.txt")
        >>> glove.encode(["A cat sat.", "Dogs bark."]).shape
        torch.Size([2, 300])
    """

    def __init__(self, rows: dict[str, int], vectors: Tensor, normalize: bool = False) -> None:
        super().__init__(vectors, normalize)
        self.rows = rows

    def rows_of(self, sentences: list[str]) -> list[list[int]]:
        words = ([self.rows.get(w, self.rows.get(w.lower())) for w in split_words(text)] for text in sentences)
        return [[row for row in found if row is not None] for found in words]

    @classmethod
    def from_file(cls, path: str | Path, normalize: bool = False) -> "WordVectors":
        """Read a text file of word vectors: GloVe's, or word2vec's with `count dim` in its first line.

        Words may contain spaces, as in GloVe's 840B; tabs may separate, too. If a word occurs twice, its first
        vector counts. A terminal shows a progress bar.

        Args:
            path: a file with `word v1 v2 ...` per line, in UTF-8; gzipped if its name ends in .gz.
            normalize: see AveragedVectors.
        """
        lines = (line.replace("\t", " ").rstrip(" ") for line in read_lines(Path(path)))
        line = next(lines, "")
        if announced := re.fullmatch(r"([0-9]+) +([0-9]+)", line):  # word2vec's first line
            line = next(lines, "")
        dim = int(announced[2]) if announced else line.count(" ")  # the first word of GloVe contains no space
        rows: dict[str, int] = {}
        vectors = array("f")  # grows in place: joining a list of blocks would need the memory twice
        size = 0
        with reraise_as(f"{path}: each line must be a word and {dim} numbers"):
            for size, text in enumerate(tracked(itertools.chain([line], lines), f"reading {Path(path).name}"), 1):
                word, *values = text.rsplit(" ", dim)  # a word may contain spaces
                rows.setdefault(word, size - 1)
                vectors.extend(map(float, values))
        if not dim or len(vectors) != size * dim or (announced and size != int(announced[1])):
            raise UserError(f"{path} is damaged or cut short: it must have a word and {dim} numbers per line")
        return cls(rows, torch.frombuffer(vectors, dtype=torch.float32).view(size, dim), normalize)
