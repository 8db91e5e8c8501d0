"""The page in a real browser: what is drawn, and what a reader can do with it."""

import io
import math

import numpy as np
import pytest
from simcse_pl.reports.html.page import page as html_of
from simcse_pl.reports.html.runs import read_runs

from simcse_pl.results.neighbour import Neighbour, Neighbourhood, QueryNeighbours
from tests.reports.html.conftest import Page, loss

pytestmark = pytest.mark.browser


def traces(page, metric):
    """The lines of a chart: x, y and opacity of each."""
    script = "return document.querySelector(`[data-metric='${arguments[0]}']`).data.map(t => [t.x, t.y, t.opacity])"
    return page.run(script, metric)


def drag(page, selector, start, end):
    """Drag the mouse over an element, from one share of its width and height to another."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    element = page.browser.find_element(By.CSS_SELECTOR, selector)
    page.run("arguments[0].scrollIntoView({block: 'center'})", element)
    width, height = element.rect["width"], element.rect["height"]
    place = [(round((x - 0.5) * width), round((y - 0.5) * height)) for x, y in (start, end)]
    actions = ActionChains(page.browser).move_to_element_with_offset(element, *place[0]).click_and_hold()
    actions.move_to_element_with_offset(element, *place[1]).release().perform()


def double_click(page, selector):
    """Click twice in the middle of an element."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    ActionChains(page.browser).double_click(page.browser.find_element(By.CSS_SELECTOR, selector)).perform()


def test_thousands_of_steps_are_drawn_and_smoothed(open_page, write_curves, tmp_path):
    page = open_page(write_curves(tmp_path / "long", steps=5000, val_every=500))
    (steps, measured, faint), (_, drawn, full) = traces(page, "train/loss")
    assert steps == list(range(1, 5001))
    np.testing.assert_allclose(measured, [loss(step) for step in steps], rtol=1e-4)
    assert faint < full == 1
    weights = 0.4 * 0.6 ** np.arange(5000)
    for place in (0, 1, 250, 4999):  # the mean of all until then, each weighing 0.6 of the next
        own = weights[: place + 1][::-1]
        assert drawn[place] == pytest.approx(np.dot(own, measured[: place + 1]) / own.sum(), rel=1e-6)
    ((steps, _, _),) = traces(page, "val/spearman")  # not noisy, and not smoothed
    assert steps == [0, *range(500, 5001, 500)]
    paths = page.run("return [...document.querySelectorAll('.curves .js-line')].map(l => l.getAttribute('d').length)")
    assert len(paths) == 3 + 2 * 3 and sum(length > 10000 for length in paths) >= 3
    page.run("const s = document.getElementById('smoothing'); s.value = 0; s.dispatchEvent(new Event('input'))")
    page.settle()
    assert len(traces(page, "train/loss")) == 1


def test_zooming_one_chart_zooms_all_and_can_be_reset(open_page, write_curves, tmp_path):
    page = open_page(write_curves(tmp_path / "long", steps=3000, val_every=100))
    whole = page.ranges()
    assert whole == [pytest.approx([-60, 3060])] * 6
    drag(page, "[data-metric='train/loss'] .nsewdrag", (0.25, 0.5), (0.5, 0.5))
    page.until(lambda: page.run("return chosen.range !== null"))
    page.settle()
    (low, high), *others = page.ranges()
    assert 600 < low < 900 and 1350 < high < 1650
    assert all(other == pytest.approx([low, high]) for other in others)
    steps = traces(page, "train/lr")[0][0]
    assert low - 1 <= steps[0] <= low < high <= steps[-1] <= high + 1 and len(steps) == pytest.approx(high - low, abs=3)
    page.click("#whole")
    assert page.ranges() == whole
    page.click("[data-metric='train/loss'] .modebar-btn[data-val='pan']")
    drag(page, "[data-metric='train/loss'] .nsewdrag", (0.75, 0.5), (0.5, 0.5))
    page.until(lambda: page.run("return chosen.range !== null"))
    page.settle()
    assert all(high - low == pytest.approx(3120) and low > 500 for low, high in page.ranges())
    assert page.run("return document.querySelector(`[data-metric='train/loss']`)._fullLayout.dragmode") == "pan"
    double_click(page, "[data-metric='train/loss'] .nsewdrag")
    page.until(lambda: page.run("return chosen.range === null"))
    page.settle()
    assert page.ranges() == whole
    page.run("return Plotly.relayout(document.querySelector('.curves'), {'xaxis.range': [100, 200]})")
    page.settle()
    assert all(range_ == [100, 200] for range_ in page.ranges())


def test_a_hidden_run_is_hidden_in_all_charts(open_page, write_curves, tmp_path):
    folders = [write_curves(tmp_path / name, offset=k / 10) for k, name in enumerate(("one", "two", "three"))]
    page = open_page(*folders, labels=["one", "two", "three"])
    assert {*page.charts()} == {
        "val/spearman", "val/alignment", "val/uniformity", "train/loss", "train/lr", "speed/sentences_per_second",
    }  # fmt: skip
    path = "return document.getElementById('path').data.map(t => [t.meta[0], t.x.length, t.marker.color[0]])"
    assert all(own == [0, 1, 2] for own in page.charts().values())
    assert page.run(path) == [[place, 4, "#fff"] for place in range(3)]
    page.click("tr[data-run='1'] input")
    assert all(own == [0, 2] for own in page.charts().values())
    assert [place for place, *_ in page.run(path)] == [0, 2]
    assert page.run("return document.getElementById('count').textContent") == "2 of 3 runs shown"
    page.click("tr[data-run='1'] .only")
    assert all(own == [1] for own in page.charts().values())
    page.click("#none")
    assert all(own == [] for own in page.charts().values())
    page.click("#all")
    assert all(own == [0, 1, 2] for own in page.charts().values())


def coloured_pixels(png):
    """How many pixels of a picture are neither grey nor nearly so."""
    from PIL import Image

    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    return int((pixels.max(axis=-1) - pixels.min(axis=-1) > 40).sum())


def test_a_range_on_an_axis_of_a_sweep_selects_runs(open_page, write_large_sweep):
    from selenium.webdriver.common.by import By

    page = open_page(write_large_sweep())
    values = page.run("return document.querySelector('.parallel').data[0].dimensions.map(d => [d.name, d.values])")
    axes = dict(values)
    assert [len(own) for own in axes.values()] == [30] * 7
    assert axes["dev"] == pytest.approx([60 + place / 2 for place in range(30)])
    assert page.run("return document.querySelector('.parallel').querySelectorAll('.parcoords .y-axis').length") == 7
    assert "not drawn, without a score: 30" in page.run("return document.body.textContent")
    assert "failed or unfinished: 30" in page.run("return document.body.textContent")
    script = "return [...document.querySelectorAll('table')].map(t => [...t.rows].map(r => r.cells.length))"
    assert all(len(set(cells)) == 1 for cells in page.run(script))
    chart = page.browser.find_element(By.CSS_SELECTOR, ".parallel")
    page.run("arguments[0].scrollIntoView({block: 'center'})", chart)
    drawn = coloured_pixels(chart.screenshot_as_png)
    assert drawn > 5000
    page.click("tr[data-run='3'] input")
    assert page.run("return document.querySelector('.parallel').data[0].dimensions[0].values.length") == 29
    page.click("#all")
    dev = [axis for axis, _ in values].index("dev") + 1
    drag(page, f".parallel .y-axis:nth-of-type({dev}) .axis-brush .background", (0.5, 0.02), (0.5, 0.4))
    page.until(lambda: page.run("return chosen.brushed.size > 0"))
    page.settle()
    (low, high) = page.run("return document.querySelector('.parallel').data[0].dimensions.at(-1).constraintrange")
    expected = [place for place in range(30) if low <= 60 + place / 2 <= high]
    assert 5 < len(expected) < 20
    assert page.charts()["train/loss"] == expected
    assert page.run("return document.querySelectorAll('#runs tr.hidden').length") == 31 - len(expected)


def test_colours_show_the_score_or_the_value_of_an_option(open_page, write_large_sweep):
    page = open_page(write_large_sweep())
    swatches = "return [...document.querySelectorAll('.swatch')].map(s => s.style.background)"
    by_score = page.run(swatches)
    assert len(set(by_score)) == 31 and by_score[30] == "rgb(154, 162, 171)"  # the failed one
    page.run(
        "const c = document.getElementById('colour'); c.value = '=model.pooling'; c.dispatchEvent(new Event('change'))"
    )
    page.settle()
    by_pooling = page.run(swatches)
    assert by_pooling[0] == by_pooling[2] != by_pooling[1] == by_pooling[3]
    line = "document.querySelector('[data-metric=\"train/loss\"]').data[1].line.color"
    painted = f"const own = document.createElement('i'); own.style.background = {line}; return own.style.background"
    assert page.run(painted) == by_pooling[1]


def test_a_click_on_a_column_sorts_the_table_with_missing_values_last(open_page, write_large_sweep):
    page = open_page(write_large_sweep())
    column = (
        "return [...document.querySelectorAll('#runs tbody tr')].map(r => r.cells[arguments[0]].textContent.trim())"
    )
    names = page.run("return [...document.querySelectorAll('#runs th')].map(h => h.textContent.trim())")

    def sort(name):
        page.click(f"#runs th:nth-child({names.index(name) + 1}) button")
        return page.run(column, names.index(name))

    best = [f"{60 + place / 2:.2f}" for place in range(30)]
    assert sort("dev") == [*best[::-1], "–"]
    assert sort("dev") == [*best, "–"]
    dropouts = sort("model.dropout")
    assert dropouts == [value for value in ("0.0", "0.05", "0.1", "0.2", "0.3") for _ in range(6)] + ["0.9"]
    assert sort("model.dropout") == dropouts[::-1]
    assert sort("run")[:3] == ["0", "1", "2"]
    assert page.run("return document.querySelectorAll('[aria-sort]').length") == 1
    page.click("tr[data-run='29'] .only")  # also after sorting
    assert page.charts()["train/loss"] == [29]


def test_long_curves_are_thinned_to_extremes_and_gaps_of_smoothed_curves_stay_gaps(open_page, write_curves, tmp_path):
    page = open_page(write_curves(tmp_path / "run"))
    rng = np.random.default_rng(0)
    values = rng.normal(size=10000).round(4).tolist()
    values[4000] = 50.0
    values[7000] = None
    kept = page.run("return points([...Array(10000).keys()], arguments[0], 400)", values)
    assert kept == sorted(set(kept)) and 200 < len(kept) <= 404
    assert {0, 4000, 7000, 9999} <= {*kept}
    assert min(values[k] for k in kept if values[k] is not None) == min(v for v in values if v is not None)
    page.run("chosen.range = [3990, 4010]")
    assert page.run("return points([...Array(10000).keys()], arguments[0], 400)", values) == list(range(3989, 4012))
    assert page.run("return points([7], [1], 400)") == [0]
    assert page.run("return smoothed([1, null, 3], 0.5)") == [1, None, pytest.approx((0.5 * 1 + 3) / 1.5)]
    assert page.run("return smoothed([4, 4, 4], 0.99)") == pytest.approx([4, 4, 4])


ATTACK = "</script><img src=x onerror=\"document.title='taken'\"><b>bold</b>&lt;i&gt;%{x}"


def test_names_are_escaped_and_never_run(browser, write_sweep, job, write_curves, tmp_path):
    folder = write_sweep("s", *(job(0.7 + k / 10, options={"a": f"{ATTACK}{k}", "b": k}) for k in range(2)))
    runs, sweeps = read_runs({ATTACK: folder, f"{ATTACK} alone": write_curves(tmp_path / "run")})
    found = Neighbourhood(
        ATTACK, 9, ATTACK, [QueryNeighbours(ATTACK, [Neighbour(ATTACK, 0.5)], [Neighbour(ATTACK, 0.5)])]
    )
    file = tmp_path / "page.html"
    file.write_text(html_of(runs, sweeps, found), encoding="utf-8")
    assert "<img" not in file.read_text(encoding="utf-8").replace(_plotly(), "")
    page = Page(browser, file)
    assert page.run("return document.querySelectorAll('img, b b').length") == 0
    assert page.run("return document.title").startswith(ATTACK)
    assert page.run("return document.querySelector('.query h3').textContent") == ATTACK
    page.run("Plotly.Fx.hover(document.querySelector('.curves'), [{curveNumber: 0, pointNumber: 1}])")
    hovered = "return document.querySelector('.curves .hoverlayer').textContent"
    page.until(lambda: page.run(hovered))
    assert ATTACK in page.run(hovered) and "step 20" in page.run(hovered)
    page.run("Plotly.Fx.hover(document.getElementById('path'), [{curveNumber: 0, pointNumber: 1}])")
    page.until(lambda: "step 20" in page.run("return document.querySelector('#path .hoverlayer').textContent"))
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert page.read_logs() == ([], [])


def _plotly():
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def test_a_phone_shows_the_page_without_scrolling_sideways(open_page, write_large_sweep, browser):
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    page = open_page(write_large_sweep())
    assert page.run("return document.documentElement.scrollWidth") <= 390
    assert max(page.run("return [...document.querySelectorAll('.curves')].map(c => c._fullLayout.width)")) <= 390


def test_a_page_without_curves_scores_or_coordinates(open_page, write_sweep, job):
    page = open_page(write_sweep("s", job(float("nan")), job()))
    text = page.run("return document.body.textContent")
    assert "No run has curves yet." in text
    assert "No coordinates are drawn" in text
    assert "Not shown: no run has a saved encoder" in text
    assert page.charts() == {}
    page.click("#none")
    assert page.run("return document.getElementById('path').data") == []


def test_the_same_runs_give_the_same_page(write_large_sweep):
    runs, sweeps = read_runs({"s": write_large_sweep()})
    found = Neighbourhood("c", 2, None, [], "none")
    assert html_of(runs, sweeps, found) == html_of(runs, sweeps, found)
    assert math.isclose(len(html_of(runs, sweeps, found)), len(_plotly()), abs_tol=300_000)
