"""What the STS and the transfer tasks of a SentEval bundle share: lines of its files, and how much it should hold."""

import logging
from pathlib import Path

from simcse_pl.utils.errors import UserError, first_line

log = logging.getLogger(__name__)

# Pairs or rows that are scored: of the bundle that its own script downloads.
ORIGINAL_SIZES = {
    ("STS12", "test"): 3108,
    ("STS13", "test"): 1500,
    ("STS14", "test"): 3750,
    ("STS15", "test"): 3000,
    ("STS16", "test"): 1186,
    ("STS-B", "dev"): 1500,
    ("STS-B", "test"): 1379,
    ("SICK-R", "dev"): 500,
    ("SICK-R", "test"): 4927,
    ("MR", "test"): 10662,
    ("CR", "test"): 3775,
    ("SUBJ", "test"): 10000,
    ("MPQA", "test"): 10606,
    ("SST", "test"): 1821,
    ("TREC", "test"): 500,
    ("MRPC", "test"): 1725,
}


class NotInBundleError(UserError):
    """A task that a bundle has no file of."""


def text_lines(path: Path, encodings: tuple[str, ...] = ("utf-8-sig",)) -> list[str]:
    """The lines of a bundle's file, without their ends; U+0085 and its like end none.

    Args:
        path: the file.
        encodings: the first that can decode the whole file is taken.

    Raises:
        UserError: no such file, or one that cannot be read or decoded.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            problem = f"{path}, line {line}: not UTF-8 (byte {content[error.start]:#04x})"
        else:
            return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    raise UserError(problem)


def warn_if_short(task: str, split: str, size: int) -> None:
    """Say so where a task has fewer pairs or rows than the original: a score on it is no other paper's."""
    original = ORIGINAL_SIZES.get((task, split), 0)
    if size < original:
        log.warning("%s %s: %d of the original's %d: compare its score with care", task, split, size, original)
