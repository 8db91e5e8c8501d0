"""Tables in LaTeX."""

import math
import re
import shutil
import subprocess
from dataclasses import replace

import pandas as pd
import pytest

from simcse_pl.lab.latex import latex
from simcse_pl.utils.tables import Table


def test_latex_is_a_booktabs_table_with_special_characters_escaped():
    names = ["a_b & 50 % | {x}", "paper, Table 5: é ~ \\ ^ # $ <>"]
    frame = pd.DataFrame({"encoder": names, "STS-B": [61.19, 1 / 3], "share >= 0": [math.nan, 0.123456]})
    text = latex(Table("sts", "STS_x 100 %", frame, {"STS-B": 2, "share >= 0": 4}))
    for expected in (
        r"\caption{STS\_x 100 \%}",
        r"\begin{tabular}{lrr}",
        r"a\_b \& 50 \% | \{x\} & 61.19 & -- \\",
        r"\textasciitilde{} \textbackslash{} \textasciicircum{} \# \$ \textless{}\textgreater{} & 0.33 & 0.1235",
    ):
        assert expected in text


def test_latex_has_the_best_of_each_column_or_row_in_bold_and_signs_of_mathematics():
    frame = pd.DataFrame({"encoder": ["x-1", "y"], "loss ↓": [-1.234, -1.236], "mrr ↑": [0.5, math.nan], "a": 1.0})
    table = Table("t", "t", frame, best="column")
    assert r"x-1 & $-$1.23 & 0.50 & \textbf{1.00} \\" in latex(table)
    assert r"encoder & loss $\downarrow$ & mrr $\uparrow$ & a \\" in latex(table)
    assert r"y & \textbf{$-$1.24} & -- & \textbf{1.00} \\" in latex(table)
    rows = latex(replace(table, frame=frame.drop(columns="loss ↓"), best="row"))
    assert r"x-1 & 0.50 & \textbf{1.00} \\" in rows and "y & -- & 1.00" in rows
    by_file = replace(table, frame=frame.assign(file=["de", "en"]))
    assert "textbf" not in latex(by_file) and "textbf" not in latex(replace(table, best=None))
    cells = pd.DataFrame({"dev": ["* 81.60 ± 0.27 (5)", "+1.33 [-0.10, +2.77]"]})
    seeds = Table("t", "t", pd.DataFrame({"dev": [81.6, 80.0]}), cells=cells, notes=["seeds; *: best"])
    of_seeds = latex(seeds)
    assert r"\textbf{81.60 $\pm$ 0.27 (5)}" in of_seeds and "+1.33 [$-$0.10, +2.77]" in of_seeds
    assert of_seeds.startswith("% seeds; bold: best\n")
    titled = latex(Table("t", "Table 3, size=mini: mrr x 100", pd.DataFrame({"a": [1.0]})))
    assert r"\caption{Table 3, size=mini: mrr $\times$ 100}" in titled and r"\label{tab:t}" in titled
    captioned = latex(replace(seeds, caption="Dropout: mrr x 100; mean ± standard deviation; *: the best mean"))
    assert r"\caption{Dropout: mrr $\times$ 100; mean $\pm$ standard deviation; bold: the best mean}" in captioned


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs LaTeX")
def test_latex_compiles_the_tables(tmp_path):
    frame = pd.DataFrame({"run": ["a_b", "~ \\ ^ é"], "loss ↓": ["* 1.25 ± 0.50 (5)", "-1.00"], "mrr ↑": ["3", "–"]})
    wide = pd.DataFrame({f"a long name of a column {number}": [1.0] for number in range(9)})
    table = latex(Table("best", "mrr x 100", frame, notes=["*: best"])) + latex(Table("wide", "wide", wide))
    head = "\\documentclass{article}\n\\usepackage{booktabs,graphicx}\n\\begin{document}\n"
    (tmp_path / "table.tex").write_text(f"{head}{table}\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "table.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and not re.search("Missing character|Overfull", run.stdout), run.stdout
