"""A table, read back from each of its formats."""

import csv
import io
import math
import shutil
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import prepare_output, show

EXACT = 61.190000000000005


@pytest.fixture
def table():
    frame = pd.DataFrame(
        {
            "encoder": ["a_b & 50 % | {x}", "paper, Table 5: é ~ \\ ^ # $ <>"],
            "STS-B": [EXACT, 1 / 3],
            "share >= 0": [float("nan"), 0.123456],
            "pairs": pd.Series([1379, None], dtype="Int64"),
        }
    )
    return Table("sts", "STS_x 100 %", frame, {"STS-B": 2, "share >= 0": 4, "pairs": 0}, ["a note: 5 %\nmore"])


def test_no_control_character_reaches_the_terminal():
    """ESC and U+009B begin commands, such as one that renames the window."""
    frame = pd.DataFrame({"a\x1b": ["\x1b]0;title\x07", "\x9b31m语"]})
    console = Console(width=60, file=io.StringIO())
    console.print(Table("t", "T\x1b", frame, notes=["n\x1b"]).printed())
    shown = console.file.getvalue()
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert shown.count("\\x1b") == 4 and "\\x9b31m语" in shown


def test_the_terminal_shows_rounded_numbers_and_dashes_below_a_title_that_may_be_wider(table):
    table = replace(table, title=f"STS_x 100 %, {'long/' * 20}path")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table.printed())
    text = console.export_text()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert rows == [
        ["a_b & 50 % | {x}", "61.19", "–", "1379"],
        ["paper, Table 5: é ~ \\ ^ # $ <>", "0.33", "0.1235", "–"],
    ]
    assert f"{table.title}\n" in text and "a note: 5 %" in text
    assert r"| a_b & 50 % \| {x} " in table.markdown()


def test_standard_output_that_is_not_utf_8_gets_a_table_in_ascii(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    prepare_output()
    frame = pd.DataFrame({"run": ["语料", "70.25 ± 1.50"], "Spearman ↑": [61.19, 60.0]})
    show(Table("runs", "语料", frame).printed())
    print("outputs/语料")
    sys.stdout.flush()
    text = sys.stdout.buffer.getvalue().decode("ascii")
    assert text.endswith("outputs/\\u8bed\\u6599\n") and all(part in text for part in ("\\xb1 1.50", "\\u2191"))


def test_csv_has_full_precision(table):
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert [float(row["STS-B"]) for row in rows] == [EXACT, 1 / 3]
    assert [(row["share >= 0"], row["pairs"]) for row in rows] == [("", "1379"), ("0.123456", "")]


def test_latex_is_a_booktabs_table_with_special_characters_escaped(table):
    text = table.latex()
    for expected in (
        r"\caption{STS\_x 100 \%}",
        r"\begin{tabular}{lrrr}",
        r"a\_b \& 50 \% | \{x\} & 61.19 & -- & 1379 \\",
        r"\textasciitilde{} \textbackslash{} \textasciicircum{} \# \$ \textless{}\textgreater{} & 0.33 & 0.1235 & --",
    ):
        assert expected in text


def test_latex_has_the_best_of_each_column_or_row_in_bold_and_signs_of_mathematics():
    frame = pd.DataFrame({"encoder": ["x-1", "y"], "loss ↓": [-1.234, -1.236], "mrr ↑": [0.5, math.nan], "a": 1.0})
    table = Table("t", "t", frame, best="column")
    assert r"x-1 & $-$1.23 & 0.50 & \textbf{1.00} \\" in table.latex()
    assert r"encoder & loss $\downarrow$ & mrr $\uparrow$ & a \\" in table.latex()
    assert r"y & \textbf{$-$1.24} & -- & \textbf{1.00} \\" in table.latex()
    rows = replace(table, frame=frame.drop(columns="loss ↓"), best="row").latex()
    assert r"x-1 & 0.50 & \textbf{1.00} \\" in rows and "y & -- & 1.00" in rows
    by_file = replace(table, frame=frame.assign(file=["de", "en"]))
    assert "textbf" not in by_file.latex() and "textbf" not in replace(table, best=None).latex()
    cells = pd.DataFrame({"dev": ["* 81.60 ± 0.27 (5)", "+1.33 [-0.10, +2.77]"]})
    of_seeds = Table("t", "t", pd.DataFrame({"dev": [81.6, 80.0]}), cells=cells, notes=["seeds; *: best"]).latex()
    assert r"\textbf{81.60 $\pm$ 0.27 (5)}" in of_seeds and "+1.33 [$-$0.10, +2.77]" in of_seeds
    assert of_seeds.startswith("% seeds; bold: best\n") and "footnotesize" not in of_seeds
    wide = Table("t", "mrr x 100", pd.DataFrame({str(number): [1.0] for number in range(7)})).latex()
    assert r"\centering\footnotesize" in wide and r"\caption{mrr $\times$ 100}" in wide


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs LaTeX")
def test_latex_compiles(table, tmp_path):
    frame = pd.DataFrame({"run": ["a", "b"], "loss ↓": ["* 1.25 ± 0.50 (5)", "-1.00"], "mrr ↑": ["3", "+2 [-1, 3]"]})
    tables = table.latex() + Table("best", "mrr x 100", frame, notes=["*: best"]).latex()
    document = f"\\documentclass{{article}}\n\\usepackage{{booktabs}}\n\\begin{{document}}\n{tables}\\end{{document}}\n"
    (tmp_path / "tables.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "tables.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and "Missing character" not in run.stdout, run.stdout
