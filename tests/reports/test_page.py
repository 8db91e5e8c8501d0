"""The HTML page: what its tables and charts show, and what a reader can do in a browser."""

import json
import time

import pytest

from simcse_pl.reports.page import curves, page, parallel_coordinates, runs_table
from simcse_pl.reports.sweeps.seed_groups import read_sweeps

ATTACK = "</script><img src=x onerror=\"document.title='taken'\">"


@pytest.fixture
def sweep(write_sweep, write_run, job):
    """A sweep of three jobs with curves, the last of which has failed."""
    options = [
        {"model.dropout": dropout, "model.pooling": pooling} for dropout, pooling in ((0.1, "cls"), (0.05, "mean"))
    ]
    jobs = [job(0.7, options=options[0]), job(0.8, options=options[1]), job(options=options[1])]
    folder = write_sweep("s", *jobs)
    for number in range(3):
        write_run(f"s/{number}", spearman=0.6 + number / 10)
    return folder


def jobs_of(folder):
    return read_sweeps({"s": folder})[0].jobs


def test_the_table_has_the_options_that_differ_the_scores_and_the_state(sweep):
    rows = runs_table(jobs_of(sweep)).shown()
    assert rows[["run", "model.dropout", "model.pooling", "dev", "test", "before"]].to_numpy().tolist() == [
        ["0", "0.1", "cls", "70.00", "65.00", "60.00"],
        ["1", "0.05", "mean", "80.00", "75.00", "60.00"],
        ["2", "0.05", "mean", "–", "–", "–"],
    ]
    assert rows["state"].tolist() == ["finished", "finished", "failed or unfinished"]


def test_parallel_coordinates_lead_from_options_to_scores(sweep, group, write_sweep, job):
    (lines,) = parallel_coordinates(group(sweep)).data
    axes = {axis.label: axis for axis in lines.dimensions}
    assert list(axes) == ["model.dropout", "model.pooling", "alignment", "uniformity", "test", "dev"]
    assert list(axes["model.dropout"].values) == [1, 0] and list(axes["model.dropout"].ticktext) == ["0.05", "0.1"]
    assert list(axes["dev"].values) == list(lines.line.color) == pytest.approx([70, 80])
    assert parallel_coordinates(group(write_sweep("one", job(0.7), job(float("nan"), seed=1)))) is None


def test_all_curves_are_in_one_figure_coloured_by_score_and_linked_by_run(sweep):
    figure = curves(jobs_of(sweep))
    assert [line.name for line in figure.data] == ["0", "1", "2"] * 5
    assert [line.legendgroup for line in figure.data if line.showlegend] == ["0", "1", "2"]
    assert list(figure.data[1].x) == [0, 4, 8, 12]
    assert list(figure.data[1].y) == pytest.approx([0.7, 0.71, 0.72, 0.73])
    assert list(figure.data[-2].x) == pytest.approx([-1.5, -1.6, -1.7, -1.8])
    low, high, unknown = (line.line.color for line in figure.data[:3])
    assert (low, high, unknown) == ("rgb(68, 1, 84)", "rgb(189, 223, 38)", "#b0b0b0")


@pytest.mark.browser
def test_the_page_is_offline_escapes_names_and_hides_a_run_in_all_charts(sweep, write_run, browser, tmp_path):
    alone = write_run("alone")
    (alone / "results.json").write_text((sweep / "0" / "results.json").read_text())
    file = tmp_path / "page.html"
    file.write_text(page({"s": sweep, ATTACK: alone}), encoding="utf-8")
    browser.get(f"file://{file}")
    drawn = "return document.querySelectorAll('.cartesianlayer .js-line').length"
    _until(lambda: browser.execute_script(drawn) == 20)
    click = "new MouseEvent(arguments[0], {bubbles: true})"
    for event in ("mousedown", "mouseup"):
        browser.execute_script(f"document.querySelector('.legendtoggle').dispatchEvent({click})", event)
    _until(lambda: browser.execute_script(drawn) == 15)
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert ATTACK in browser.execute_script("return document.title")
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def _until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.05)
