"""The tour runs in an empty folder, its cells show what its text says, and its committed outputs are short.

`REWRITE=1 python -m pytest -m slow tests/examples/test_tour.py` replaces the committed outputs.
"""

import base64
import json
import os
import re
import shutil

import nbformat
import pytest
from nbclient import NotebookClient

from simcse_pl.results.run_files import read_run
from tests.conftest import ROOT

FILE = ROOT / "examples" / "tour.ipynb"


def code_cells(notebook):
    return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}


def text_of(cell):
    """Return what a cell shows, without images and HTML."""
    shown = [
        output.text if output.output_type == "stream" else output.data.get("text/markdown", output.data["text/plain"])
        for output in cell.outputs
    ]
    return "\n".join(shown)


def image_of(cell):
    [image] = [output.data["image/png"] for output in cell.outputs]
    return base64.b64decode(image)


def run(notebook, folder):
    """Run a notebook in an empty folder, and remove from its outputs what depends on the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))  # without the user's settings and history
        where = {"metadata": {"path": str(folder)}}
        options = {"timeout": 600, "kernel_name": "python3", "coalesce_streams": True, "record_timing": False}
        NotebookClient(notebook, resources=where, **options).execute()
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of Python


@pytest.mark.slow
def test_the_tour_runs_and_shows_what_its_text_says(tmp_path):
    notebook = nbformat.read(FILE, as_version=4)
    run(notebook, tmp_path)
    cells, files = code_cells(notebook), tmp_path / "outputs" / "notebook"

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
    assert len({image_of(cells[name]) for name in ("curves", "figure", "paths")}) == 3
    assert "Children under six" in text_of(cells["search"]).splitlines()[1]

    for name, cell in cells.items():  # nothing on standard error, short texts, no absolute path
        assert all(output.get("name") != "stderr" for output in cell.outputs), name
        assert len(text_of(cell).splitlines()) <= 20, name
        assert not re.search(r"(?<![\w.])/\w|\x1b", text_of(cell)), name
    shutil.rmtree(files)  # 550 MB
    if os.environ.get("REWRITE"):
        nbformat.write(notebook, FILE)
