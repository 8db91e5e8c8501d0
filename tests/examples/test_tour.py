"""The tour runs in an empty folder, its cells show what its text says, and its committed outputs are short.

`REWRITE=1 python -m pytest -m slow tests/examples/test_tour.py` replaces the committed outputs.
"""

import json
import os
import re
import shutil

import nbformat
import pytest
from nbclient import NotebookClient

from simcse_pl.lab.read_runs import read_run
from tests.conftest import ROOT

FILE = ROOT / "examples" / "tour.ipynb"


def text_of(cell):
    """Return what a cell shows, without images and HTML."""
    shown = [
        output.text if output.output_type == "stream" else output.data.get("text/markdown", output.data["text/plain"])
        for output in cell.outputs
    ]
    return "\n".join(shown)


@pytest.mark.slow
def test_the_tour_runs_and_shows_what_its_text_says(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # without the user's settings and history
    notebook, where = nbformat.read(FILE, as_version=4), {"metadata": {"path": str(tmp_path)}}
    options = {"timeout": 600, "kernel_name": "python3", "coalesce_streams": True, "record_timing": False}
    NotebookClient(notebook, resources=where, **options).execute()
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of Python
    cells = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}
    files = tmp_path / "outputs" / "notebook"

    def shown(cell, measure):
        """Return the values of a measure that a table has."""
        (row,) = (line.split() for line in text_of(cells[cell]).splitlines() if line.startswith(measure))
        return [float(value) for value in row[1:]]

    def saved(run, when="best"):
        return json.loads((files / run / "results.json").read_text())[when]

    before, after = shown("training", "spearman")
    assert [before, after] == [round(saved("run", when)["spearman"], 3) for when in ("before", "best")]
    assert after > before + 0.02
    jobs = [f"temperature_{t}" for t in (0.02, 0.05, 0.2)]
    assert shown("sweep", "spearman") == [round(saved(job)["spearman"], 3) for job in jobs]
    spread = [read_run(files / job).points["uniformity"].iloc[-1] for job in jobs]
    assert spread == sorted(spread, reverse=True)  # as the text says
    without, with_loss = shown("loss", "uniformity")
    assert with_loss < without
    images = [output.data["image/png"] for name in ("curves", "figure", "paths") for output in cells[name].outputs]
    assert len(images) == len({*images}) == 3
    assert "Children under six" in text_of(cells["search"]).splitlines()[1]

    for name, cell in cells.items():  # nothing on standard error, short texts, no absolute path
        assert all(output.get("name") != "stderr" for output in cell.outputs), name
        assert len(text_of(cell).splitlines()) <= 20, name
        assert not re.search(r"(?<![\w.])/\w|\x1b", text_of(cell)), name
    shutil.rmtree(files)  # 550 MB
    if os.environ.get("REWRITE"):
        nbformat.write(notebook, FILE)
