"""Functions shared by the STS and the transfer tasks of a SentEval bundle: lines of its files, and expected sizes."""

from pathlib import Path

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import check_is_file

# The number of scored pairs or rows in the bundle that SentEval's own script downloads.
ORIGINAL_SIZES = {
    ("STS12", "test"): 3108,
    ("STS13", "test"): 1500,
    ("STS14", "test"): 3750,
    ("STS15", "test"): 3000,
    ("STS16", "test"): 1186,
    ("STS-B", "test"): 1379,
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
    """The bundle has no file of a task."""


def text_lines(path: Path) -> list[str]:
    """Return the lines of a file that is UTF-8, or else Latin-1, as some of SentEval's files are.

    Raises:
        UserError: the file does not exist or cannot be read.
    """
    check_is_file(path)
    with reraise_as(f"{path} cannot be read"):
        content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    lines = text.removesuffix("\n").split("\n") if text else []  # U+0085 and U+2028 are text
    return [line.removesuffix("\r") for line in lines]


def tab_separated_rows(path: Path, columns: int, header: bool = False) -> list[tuple[int, list[str]]]:
    """Return the line number and the cells of each line that is not blank.

    Args:
        path: the file.
        columns: the smallest number of cells.
        header: skip the first line.

    Raises:
        UserError: a line has too few columns, the file has no rows, or as from `text_lines`.
    """
    lines = list(enumerate(text_lines(path), 1))[1 if header else 0 :]
    rows = [(number, line.split("\t")) for number, line in lines if line.strip()]
    for number, cells in rows:
        if len(cells) < columns:
            raise UserError(f"{path}, line {number}: {len(cells)} columns where there should be {columns}")
    if not rows:
        raise UserError(f"{path} has no rows")
    return rows
