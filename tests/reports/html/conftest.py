"""Runs with curves in the real format, and pages opened in a browser."""

import json
import math
import time

import pytest

from simcse_pl.cli.report import write_page
from simcse_pl.tracking.csv_logger import CurvesLogger

_PATIENCE = 60  # seconds


def loss(step, offset=0.0):
    """Return a noisy loss."""
    return round(1 / (1 + step / 50) + 0.3 * math.sin(step * 12.9898) + offset, 6)


def validation(step, offset=0.0):
    """Return the metrics of a validation."""
    return {
        "val/spearman": 0.6 + 0.2 * (1 - math.exp(-step / 100)) + offset,
        "val/alignment": 0.3 - 0.1 * (1 - math.exp(-step / 80)) + offset,
        "val/uniformity": -1.5 - 0.5 * (1 - math.exp(-step / 90)) + offset,
    }


@pytest.fixture
def write_curves():
    """Write the curves of a run with the logger of training."""

    def write(folder, steps=60, val_every=20, offset=0.0):
        folder.mkdir(parents=True, exist_ok=True)
        logger = CurvesLogger(save_dir=folder, name="", version="")
        logger.log_metrics({"epoch": 0, **validation(0, offset)}, step=0)
        for step in range(1, steps + 1):
            row = {"train/loss": loss(step, offset), "train/lr": 1e-4, "speed/sentences_per_second": 100.0 + step % 7}
            logger.log_metrics({"epoch": 0, **row}, step=step - 1)  # as Lightning does
            if step % val_every == 0:
                logger.log_metrics({"epoch": 0, **validation(step, offset)}, step=step)
        logger.save()
        return folder

    return write


@pytest.fixture
def write_large_sweep(write_sweep, job, write_curves):
    """Write a sweep of 30 finished jobs, in the order of their scores on dev, and a failed one."""

    def write(steps=60):
        options = [
            {"model.dropout": dropout, "objective.temperature": temperature, "model.pooling": pooling}
            for dropout in (0.0, 0.05, 0.1, 0.2, 0.3)
            for temperature in (0.02, 0.05, 0.1)
            for pooling in ("cls", "mean")
        ]
        jobs = [job(0.6 + place / 200, options=own) for place, own in enumerate(options)]
        folder = write_sweep("swept", *jobs, job(options={"model.dropout": 0.9}))
        for place in range(len(jobs)):
            write_curves(folder / str(place), steps, offset=place / 1000)
        return folder

    return write


class Page:
    """A page that is open in a browser.

    Args:
        browser: a selenium driver.
        file: the page.
    """

    def __init__(self, browser, file):
        self.browser = browser
        self.read_logs()
        browser.get(f"file://{file}")
        self.settle()

    def run(self, script, *arguments):
        """Run a script in the page and return its value."""
        return self.browser.execute_script(script, *arguments)

    def settle(self):
        """Wait until everything is drawn."""
        self.until(lambda: self.run("return typeof draw === 'function' && !waiting"))
        self.browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")

    def until(self, condition):
        """Wait until a condition is true."""
        end = time.monotonic() + _PATIENCE
        while not condition():
            assert time.monotonic() < end, "timeout"
            time.sleep(0.05)

    def click(self, selector):
        """Click the first element that a selector matches."""
        click = "new MouseEvent('click', {bubbles: true})"  # SVG elements have no click()
        self.run(f"document.querySelector(arguments[0]).dispatchEvent({click})", selector)
        self.settle()

    def charts(self):
        """Return the runs that each chart shows, by metric."""
        script = (
            "return [...document.querySelectorAll('.curves')].map(c => [c.dataset.metric, c.data.map(t => t.meta[0])])"
        )
        return {metric: sorted(set(places)) for metric, places in self.run(script)}

    def ranges(self):
        """Return the range of steps of each chart."""
        return self.run("return [...document.querySelectorAll('.curves')].map(c => c._fullLayout.xaxis.range)")

    def read_logs(self):
        """Return script errors and network requests since the last call."""
        console = [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]
        events = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return console, [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


@pytest.fixture
def open_page(browser, tmp_path):
    """Write the page of some folders and open it; check for script errors and network requests at the end."""
    pages = []

    def open_(*folders, labels=None, sentences=None):
        file = tmp_path / "page.html"
        write_page([str(folder) for folder in folders], labels, str(file), sentences)
        pages.append(Page(browser, file))
        return pages[-1]

    yield open_
    for page in pages[-1:]:
        assert page.read_logs() == ([], [])
