"""The style of all figures: sized for a page of a paper, and legible in greyscale and for the colour-blind."""

import io
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Text stays text in SVG, and the same figure gives the same bytes.
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 200,
    "legend.frameon": False,
    "legend.handlelength": 4,
    "svg.fonttype": "none",
    "svg.hashsalt": "simcse_pl",
    "text.parse_math": False,
    "text.usetex": False,
}
WIDTH = 5.5  # inches: the width of a page's text
LEGEND_WIDTH = 30  # characters of a line in a legend of two columns
# The palette of Okabe and Ito without yellow. Dashes and markers carry the same information.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (2.5, 1)),
    (0, (9, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (1, 3)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")


def figure_files(name: str, figure: Figure) -> dict[str, bytes]:
    """Return the files of a figure by name: PNG and SVG."""
    files = {}
    for ending, metadata in (("png", {}), ("svg", {"Date": None})):
        buffer = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            figure.savefig(buffer, format=ending, metadata=metadata)
        files[f"{name}.{ending}"] = buffer.getvalue()
    return files
