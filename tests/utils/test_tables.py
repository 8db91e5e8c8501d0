"""One table in its forms, each read back."""

import csv
import io
import json

import pandas as pd
import pytest
from rich.console import Console

from simcse_pl.utils.tables import Table

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


def printed(table, width=200):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table.printed())
    return console.export_text()


def test_the_terminal_shows_rounded_numbers_and_dashes_for_what_is_not_there(table):
    text = printed(table)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert rows == [
        ["a_b & 50 % | {x}", "61.19", "–", "1379"],
        ["paper, Table 5: é ~ \\ ^ # $ <>", "0.33", "0.1235", "–"],
    ]
    assert "STS_x 100 %" in text
    assert "a note: 5 %" in text


def test_brackets_are_no_markup_in_the_terminal():
    table = Table("t", "[red]title", pd.DataFrame({"encoder": ["[bold]x[/bold] [/y]"], "[z]": [1.0]}), notes=["[/n]"])
    for expected in ("[red]title", "[bold]x[/bold] [/y]", "[z]", "[/n]"):
        assert expected in printed(table)


def test_a_narrow_terminal_breaks_labels_and_never_numbers():
    frame = pd.DataFrame({"encoder": ["a/very_long-label" * 5], "a heading of words": [1234567.125]})
    assert "1234567.12" in printed(Table("t", "t", frame), width=40)


def test_markdown_is_a_pipe_table(table):
    lines = table.markdown().splitlines()
    assert lines[0] == "**STS_x 100 %**"
    assert lines[-1] == "a note: 5 % more"
    rows = [line.replace("\\|", "&#124;").strip("|").split("|") for line in lines if line.startswith("|")]
    cells = [[cell.strip().replace("&#124;", "|") for cell in row] for row in rows]
    assert cells[0] == ["encoder", "STS-B", "share >= 0", "pairs"]
    assert cells[2] == ["a_b & 50 % | {x}", "61.19", "–", "1379"]
    assert cells[3][1:] == ["0.33", "0.1235", "–"]
    assert [cell.endswith(":") for cell in cells[1]] == [False, True, True, True]


def test_csv_has_every_digit(table):
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert [float(row["STS-B"]) for row in rows] == [EXACT, 1 / 3]
    assert [row["share >= 0"] for row in rows] == ["", "0.123456"]
    assert [row["pairs"] for row in rows] == ["1379", ""]
    assert [row["encoder"] for row in rows] == table.frame["encoder"].tolist()


def test_json_has_every_digit_and_null_for_what_is_not_there(table):
    content = json.loads(table.json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert content["title"] == "STS_x 100 %"
    assert content["notes"] == table.notes
    assert [row["STS-B"] for row in content["rows"]] == [EXACT, 1 / 3]
    assert content["rows"][0] == {
        "encoder": "a_b & 50 % | {x}",
        "STS-B": EXACT,
        "share >= 0": None,
        "pairs": 1379,
    }


def test_latex_is_a_booktabs_table_with_its_special_characters_escaped(table):
    text = table.latex()
    assert text.startswith("% a note: 5 % more\n\\begin{table}")
    for expected in (
        r"\caption{STS\_x 100 \%}",
        r"\label{tab:sts}",
        r"\begin{tabular}{lrrr}",
        r"encoder & STS-B & share \textgreater{}= 0 & pairs \\",
        r"a\_b \& 50 \% | \{x\} & 61.19 & – & 1379 \\",
        r"\textasciitilde{} \textbackslash{} \textasciicircum{} \# \$ \textless{}\textgreater{} & 0.33 & 0.1235 & – \\",
    ):
        assert expected in text
    places = [text.index(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")]
    assert places == sorted(places)


def test_latex_breaks_the_lines_of_tables_of_sentences():
    table = Table("t", "t", pd.DataFrame({"": ["query"], "A": ["a long sentence"], "B": ["another"]}))
    assert r"\begin{tabular}{lp{0.30\linewidth}p{0.30\linewidth}}" in table.latex()


def test_the_files_are_the_four_forms(table):
    assert {name: content.decode() for name, content in table.files().items()} == {
        "sts.md": table.markdown(),
        "sts.csv": table.csv(),
        "sts.json": table.json(),
        "sts.tex": table.latex(),
    }
