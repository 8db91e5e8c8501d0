"""The generated parts of docs/gpu.md, from the records."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import comparison

Records = Sequence[dict[str, Any]]
_LARGEST = 3  # errors of a precision that the page shows
_NOT_MEASURED = "Not measured.\n"
_PART = re.compile(r"(?<=<!-- )(?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)


def updated(page: str, folder: Path) -> str:
    """Return the page with its generated parts up to date with a folder of records."""
    contents = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}
    rates = next(
        (own for own in contents.get("training", {}).get("records", ()) if "operations_per_second" in own), None
    )
    texts = {"machine": machines(contents)}
    if rates:
        numbers = (f"{rate / 1e12:,.1f} in {kind}" for kind, rate in rates["operations_per_second"].items())
        texts["peak"] = f"TFLOP/s of products of {rates['case']}: {', '.join(numbers)}.\n"
    tables = {"losses": losses, "kernels": errors, "runs": errors, "profiles": profiles}
    for name, content in contents.items():
        make = tables.get(name, lambda records: speeds(records, rates))
        ended = "" if content["complete"] else "\nThis part ended before everything was measured.\n"
        texts[name] = make(content["records"]) + ended
    return _PART.sub(lambda own: f"{own['name']} -->\n{texts.get(own['name']) or _NOT_MEASURED}<!-- end -->", page)


def machines(contents: dict[str, Any]) -> str:
    """Return where and when the records were measured."""
    lines = []
    for content in contents.values():
        own = content["machine"]
        versions = own["versions"].replace("-dirty", "")  # the records themselves change the clone
        card = f"{own['count']} x {own['card']}" + (
            f", driver {own['driver']}, CUDA {own['cuda']}" if "cuda" in own else ""
        )
        lines.append(f"Measured on {card}, {versions}, Python {own['python']}, {content['date']}.\n")
    return "\n".join(dict.fromkeys(lines))


def losses(records: Records) -> str:
    """Return the median and the largest relative errors over all cases, and a table of the cases that failed."""
    rows = []
    for name in dict.fromkeys(name for own in records for name in own.get("errors", ())):
        found = {own["case"]: max(own["errors"][name]) for own in records if name in own.get("errors", ())}
        largest = sorted(found, key=lambda case: -found[case])[:_LARGEST]
        shown = ", ".join(f"{found[case]:.1e} (`{case}`)" for case in largest)
        rows.append([name, str(len(found)), f"{median(found.values()):.1e}", shown])
    failed = [own for own in records if not own["passed"]]
    return table(["precision", "cases", "median", "largest"], rows) + ("\n" + errors(failed) if failed else "")


def errors(records: Records) -> str:
    """Return a table of the largest relative error of each case."""
    precisions = list(dict.fromkeys(name for own in records for name in own.get("errors", ())))
    rows = []
    for own in records:
        found = {name: f"{max(values):.1e}" for name, values in own.get("errors", {}).items()}
        failed = "" if own["passed"] else f" **failed** {own.get('error', '').replace('|', '/')}"
        rows.append([f"`{own['case']}`{failed}", *(found.get(name, "–") for name in precisions)])
    return table(["case", *precisions], rows)


def speeds(records: Records, rates: dict[str, Any] | None) -> str:
    """Return a table of the rate of each way, and of its share of the rate of matrix products in bf16.

    The first way of a case has its name.
    """
    rows = []
    for own in (record for record in records if "seconds" in record):
        ways = comparison("", "", "rate", own["seconds"], own["rows"], own["operations"]).frame
        for number, way in enumerate(ways.to_dict("records")):
            share, memory = "–", own.get("memory", {}).get(way["way"])
            if rates and "float32" not in way["way"]:
                share = f"{100 * way['GFLOP/s'] * 1e9 / rates['operations_per_second']['bfloat16']:.1f} %"
            times, lowest, highest = (f"{way[name]:.2f}" for name in ("times the first", "lowest", "highest"))
            times += f" ({lowest} to {highest})" * (lowest != highest)
            cells = ["" if number else own["case"], way["way"], f"{way['rate']:,.0f}", times]
            rows.append([*cells, share, f"{memory / 1e9:.2f}" if memory else "–"])
    return table(["", "way", "rows/s", "times the first (range)", "share of the peak", "peak memory, GB"], rows)


def profiles(records: Records) -> str:
    """Return a table of where the time of a step goes."""
    rows = []
    for own in records:
        shares = [f"{100 * own[name]:.0f} %" for name in ("idle", "matrix_products", "attention")]
        kernels = f"{own['kernels']:,}" if "kernels" in own else "–"
        rows.append([own["case"], kernels, *shares])
    return table(["", "kernels of a step", "idle", "matrix products", "attention"], rows)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headings, ["---"] * len(headings), *rows))
