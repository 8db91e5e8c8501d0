"""The look of all figures: sized for a page of a paper, legible in greyscale and for the colour-blind."""

import functools
import io
import logging
import re
import textwrap
import warnings
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from simcse_pl.utils.hub import quiet

log = logging.getLogger(__name__)
# for characters that DejaVu Sans lacks; matplotlib warns about fonts that are not installed
_FURTHER_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Noto Sans JP", "Noto Sans KR", "Source Han Sans SC"),
    *("WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Noto Sans Devanagari", "Noto Sans Thai"),
)
# Text stays text in SVG, and the same figure gives the same bytes.
STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans", *(name for name in _FURTHER_FONTS if name in fontManager.get_font_names())],
    "font.size": 8,
    "axes.titlesize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 200,
    "legend.frameon": False,
    "legend.handlelength": 4,
    "pdf.fonttype": 42,  # conferences reject Type 3
    "svg.fonttype": "none",
    "svg.hashsalt": "simcse_pl",
    "text.parse_math": False,
    "text.usetex": False,
}
_WITHOUT_DATE: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
WIDTH = 5.5  # inches: the width of a page's text
LEGEND_WIDTH = 30  # characters of a line in a legend of two columns
# The palette of Okabe and Ito without yellow. Dashes and markers carry the same information.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
_DASHES = ((5, 1.5), (1, 1), (6, 1.5, 1, 1.5), (2.5, 1), (9, 2), (3, 1, 1, 1, 1, 1), (1, 3))  # lengths on and off
DASHES: tuple[Any, ...] = ("-", *((0, lengths) for lengths in _DASHES))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")


def figure_of(labels: Sequence[str], height: float, more: int = 0) -> tuple[Figure, list[dict[str, Any]]]:
    """Return a figure as wide as a page, without axes, and a label and look for each line.

    Args:
        labels: the labels of the lines.
        height: the height of the axes, as a share of the width; there is room below them for a legend in two columns.
        more: further lines of the legend.
    """
    texts = [textwrap.fill(label, LEGEND_WIDTH) for label in labels]
    legend = sum(text.count("\n") + 1 for text in texts) / 2 + more
    figure = Figure((WIDTH, height * WIDTH + 0.15 * legend), layout="constrained")
    looks = [
        {"label": text, "color": colour, "linestyle": dashes, "marker": marker}
        for text, colour, dashes, marker in zip(texts, cycle(COLOURS), cycle(DASHES), cycle(MARKERS), strict=False)
    ]
    return figure, looks


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG file; see `figure_files`."""
    return figure_files("", figure, ["png"])[".png"]


def figure_files(name: str, figure: Figure, endings: Sequence[str] = ("png", "svg", "pdf")) -> dict[str, bytes]:
    """Return the files of a figure by name. Log the characters that no font has."""
    files = {}
    recorded = warnings.catch_warnings(record=True, action="always")
    with recorded as caught, matplotlib.rc_context(STYLE), quiet("fontTools"):  # it logs each table of a PDF's fonts
        for ending in endings:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, metadata=_WITHOUT_DATE[ending])
            files[f"{name}.{ending}"] = buffer.getvalue()
    lacking = set()
    for warning in caught:
        if glyph := re.match(r"Glyph (\d+) .* missing from font", str(warning.message)):
            lacking.add(chr(int(glyph[1])))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if lacking:
        _log_lacking("".join(sorted(lacking)))
    return files


@functools.cache  # several figures have the same labels
def _log_lacking(characters: str) -> None:
    cache = f"{matplotlib.get_cachedir()}/fontlist-*.json"
    log.warning("no font has %s: install one, such as fonts-noto-cjk, and remove %s", characters, cache)
