"""Tables: what stands in them, read back from the terminal."""

import json
import subprocess
import sys

import pytest
import yaml
from rich.console import Console

from simcse_pl.report.tables import run_table, sweep_table


def printed(table):
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return console.export_text()


@pytest.fixture
def results():
    scores = {"spearman": 0.7, "alignment": 0.25, "uniformity": -2.0}
    return {
        "validation": "STS-B",
        "steps": 60,
        "best_step": 48,
        "before": scores | {"spearman": 0.63},
        "best": scores | {"spearman": 0.7754},
        "test": scores | {"uniformity": float("nan")},
    }


def test_run_table_shows_before_best_test_and_where(results, tmp_path):
    text = printed(run_table(results, tmp_path))
    for expected in (
        "STS-B",
        "63.00",
        "77.54",
        "70.00",
        "step 48 of 60",
        "0.250",
        "-2.000",
        f"{tmp_path}/encoder",
        "nan",
    ):
        assert expected in text


def test_sweep_table_shows_what_differs_and_what_failed(results, tmp_path):
    for number, dropout in enumerate(("0.05", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "0.95")):
        job = tmp_path / str(number)
        (job / "config").mkdir(parents=True)
        overrides = [f"model.dropout={dropout}", "trainer.max_steps=4"]
        (job / "config" / "overrides.yaml").write_text(yaml.safe_dump(overrides))
        if number != 1:
            (job / "results.json").write_text(json.dumps(results))
    (tmp_path / "multirun.yaml").write_text("")
    lines = printed(sweep_table(tmp_path)).splitlines()
    assert "max_steps" not in "".join(lines)
    rows = [line.split("│")[1:-1] for line in lines if "│" in line]
    assert [row[0].strip() for row in rows] == [str(number) for number in range(11)]
    assert [cell.strip() for cell in rows[0]] == ["0", "0.05", "63.00", "77.54", "70.00"]
    assert [cell.strip() for cell in rows[1]] == ["1", "0.1", "failed", "", ""]


def test_no_path_is_broken_where_there_is_no_terminal(results, tmp_path):
    folder = tmp_path / ("long" * 20)
    complete = results | {"test": results["best"]}
    code = "from simcse_pl.report.tables import *\n" + f"show(run_table({complete!r}, Path({str(folder)!r})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"{folder}/checkpoints\n" in done.stdout
