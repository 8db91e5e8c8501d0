"""The generated parts of docs/gpu.md, from the records: `python -m benchmarks.gpu.page` writes them again."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.__main__ import PAGE, RECORDS

_PART = re.compile(r"(?<=<!-- )(?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)
_NOT_MEASURED = "**Not measured.**\n"


def updated(page: str, folder: Path = RECORDS) -> str:
    """Return the page with its generated parts up to date with a folder of records."""
    contents = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")}

    def part(match: re.Match[str]) -> str:
        name = match["name"]
        text = machines(contents) if name == "machine" else section(contents, name)
        return f"{name} -->\n{text or _NOT_MEASURED}<!-- end -->"

    return _PART.sub(part, page)


def machines(contents: dict[str, Any]) -> str:
    """Return where and when the records were measured."""
    lines = []
    for content in contents.values():
        own = content["machine"]
        versions = ", ".join(f"{name} {version}" for name, version in own["versions"].items())
        driver = f", driver {own['driver']}, CUDA {own['cuda']}" if "driver" in own else ""
        lines.append(f"{own['count']} x {own['card']}{driver}, {versions}, Python {own['python']}, {content['date']}")
    return "".join(f"Measured on {line}.\n" for line in dict.fromkeys(lines))


def section(contents: dict[str, Any], name: str) -> str:
    """Return the tables of a part."""
    if name not in contents:
        return ""
    content, make = contents[name], {"training": rates, "compiled": rates, "encoding": rates, "profiles": operators}
    peak = [own["operations_per_second"] for own in contents.get("training", {}).get("records", ())[:1]]
    text = make.get(name, errors)(content["records"], peak[0]["bfloat16"] if peak else None)
    return text + ("" if content["complete"] else "\nThe rest was not measured: the part ended early.\n")


def errors(records: Sequence[dict[str, Any]], peak: float | None) -> str:
    """Return a table of the relative errors of each case."""
    precisions = list(dict.fromkeys(name for own in records for name in own.get("errors", ())))
    rows = []
    for own in records:
        cells = [f"{max(own['errors'][name]):.1e}" if name in own.get("errors", ()) else "–" for name in precisions]
        result = "skipped" if "skipped" in own else "passed" if own["passed"] else "**failed**"
        why = own.get("skipped") or own.get("error")
        rows.append([f"`{own['case']}`", *cells, result + (f": {why}" if why else "").replace("|", "/")])
    return table(["case", *precisions, "result"], rows)


def rates(records: Sequence[dict[str, Any]], peak: float | None) -> str:
    """Return a table of the rate of each way, its ratio to the first way of the same round, and its share of the peak."""
    rows, notes = [], ""
    for own in records:
        if "operations_per_second" in own:
            measured = (f"{rate / 1e12:.1f} in {name}" for name, rate in own["operations_per_second"].items())
            notes = f"TFLOP/s of products of {own['case']}: {', '.join(measured)}.\n\n"
            continue
        first = next(iter(own["seconds"].values()))
        for way, seconds in own["seconds"].items():
            ratios = sorted(a / b for a, b in zip(first, seconds, strict=True))
            per_second = own["operations"] / median(seconds)
            share = f"{100 * per_second / peak:.1f} %" if peak and "float32" not in way else "–"
            memory = own.get("memory", {}).get(way)
            cells = [own["case"], way, f"{own['rows'] / median(seconds):,.0f}", f"{median(ratios):.2f}"]
            cells += [f"{ratios[0]:.2f} to {ratios[-1]:.2f}", share, f"{memory / 1e9:.2f}" if memory else "–"]
            rows.append(cells)
    headings = ["", "way", "rows/s", "times the first", "range", "share of the peak", "peak memory, GB"]
    return notes + table(headings, rows)


def operators(records: Sequence[dict[str, Any]], peak: float | None) -> str:
    """Return where the time of a step goes."""
    rows = []
    for own in records:
        top = ", ".join(
            f"`{name.removeprefix('aten::')}` {100 * share:.0f} %" for name, share in own["operators"].items()
        )
        rows.append(
            [own["case"], *(f"{100 * own[name]:.0f} %" for name in ("idle", "matrix_products", "attention")), top]
        )
    return table(["", "idle", "matrix products", "attention", "operators"], rows)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
