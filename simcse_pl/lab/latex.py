"""Tables in LaTeX, with the best cells in bold."""

import re

import pandas as pd

from simcse_pl.utils.tables import Table, one_line

_NAMES = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater"}
_SIGNS = {"±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "×": r"$\times$", "–": "--", "…": r"\dots{}"}
_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"} | {c: f"\\text{name}{{}}" for c, name in _NAMES.items()} | _SIGNS
)
_STAR = "* "  # before a cell that is the best
_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"  # of a table that is too wide
_MINUS = re.compile(r"(?<![\w.-])-(?=[\d.])")


def latex(table: Table) -> str:
    """Return a table environment for booktabs and graphicx, below the notes as comments. The best cells are bold."""
    shown, bold = table.shown(), _bold(table)
    shown = shown.map(lambda cell: _MINUS.sub("$-$", _escaped(cell.removeprefix(_STAR))))
    shown = shown.where(~bold, "\\textbf{" + shown + "}")
    numeric = [table.numeric(column) for column in shown]
    columns = ["r" if number else "l" for number in numeric]
    if not any(numeric):  # columns of sentences wrap
        columns[1:] = [f"p{{{0.9 / len(numeric):.2f}\\linewidth}}"] * (len(numeric) - 1)
    shown.columns = [_escaped(column) for column in shown]
    caption = _escaped((table.caption or table.title).replace("*: ", "bold: ")).replace(" x 100", r" $\times$ 100")
    options = {"hrules": True, "column_format": "".join(columns), "position_float": "centering"}
    text = shown.style.hide(axis="index").to_latex(caption=caption, label=f"tab:{table.name}", **options)
    if any(numeric):
        text = text.replace("\\begin{tabular}", f"{_FIT}\n\\begin{{tabular}}").replace("end{tabular}", "end{tabular}}")
    return "".join(f"% {one_line(note).replace('*: ', 'bold: ')}\n" for note in table.notes) + str(text)


def _bold(table: Table) -> pd.DataFrame:
    """Return which cells are the best: those with a star, or the numbers that are highest as they are shown.

    A number that is alone in its column or row is not the best, and below ↓ the lowest is.
    """
    shown = table.shown()
    if table.best is None:
        return shown.map(lambda cell: cell.startswith(_STAR))
    numbers = shown[[name for name in shown if table.numeric(name)]].apply(pd.to_numeric, errors="coerce")
    numbers *= [-1 if name.endswith("↓") else 1 for name in numbers]
    if table.best == "row":
        numbers = numbers.T
    files = table.frame["file"] if "file" in table.frame else pd.Series(0, numbers.index)
    groups = numbers.groupby(files)
    best = numbers.eq(groups.transform("max")) & (groups.transform("count") > 1)
    return (best.T if table.best == "row" else best).reindex(columns=shown.columns, fill_value=False)


def _escaped(text: str) -> str:
    return one_line(text).translate(_LATEX)
