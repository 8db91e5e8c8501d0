"""A table, read back from each of its formats."""

import io
import sys
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import prepare_output, show


@pytest.fixture
def table():
    frame = pd.DataFrame(
        {
            "encoder": ["a_b & 50 % | {x}", "paper, Table 5: é ~ \\ ^ # $ <>"],
            "STS-B": [61.19, 1 / 3],
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


def test_cells_wrap_between_words_and_after_dots_and_underscores_alone():
    frame = pd.DataFrame({"data.batch_size": ["CLS with MLP in training only", "0.05"], "dev": [1.0, 2.0]})
    console = Console(width=25, record=True, file=io.StringIO())
    console.print(Table("t", "t", frame).printed())
    lines = [line[1:].partition("│")[0].partition("┃")[0].strip() for line in console.export_text().splitlines()[2:-1]]
    assert [line for line in lines if "━" not in line] == [
        "data.batch_", "size", "CLS with MLP", "in training", "only", "0.05"
    ]  # fmt: skip


def test_standard_output_that_is_not_utf_8_gets_a_table_in_ascii(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    prepare_output()
    frame = pd.DataFrame({"run": ["语料", "70.25 ± 1.50"], "Spearman ↑": [61.19, 60.0]})
    show(Table("runs", "语料", frame).printed())
    print("outputs/语料")
    sys.stdout.flush()
    text = sys.stdout.buffer.getvalue().decode("ascii")
    assert text.endswith("outputs/\\u8bed\\u6599\n") and all(part in text for part in ("\\xb1 1.50", "\\u2191"))
