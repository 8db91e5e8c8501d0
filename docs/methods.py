"""Update the generated parts of docs/methods.md and docs/methods/NAME.md, and docs/figures/methods.png.

    python docs/methods.py                the references, with published and measured scores, the table, and the figure
    python docs/methods.py METHODS.md     the same, with the costs that `python -m benchmarks.methods` wrote

Generated parts stand between `<!-- NAME -->` and `<!-- end -->`. All other text is written by hand.
docs/methods/measured.csv has the scores and costs measured here.
"""

import csv
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from simcse_pl.lab.published import PublishedScore, methods_file, published_score, published_scores
from simcse_pl.lab.style import STYLE, WIDTH, png

ROOT = Path(__file__).parents[1]
INDEX = Path(__file__).with_suffix(".md")
PAGES = Path(__file__).with_suffix("")
MEASURED = PAGES / "measured.csv"
FIGURE = INDEX.parent / "figures" / "methods.png"
PAPERS = methods_file()["methods"]
PART = re.compile(r"(?<=<!-- )(?P<name>\w+) -->\n(?P<text>.*?)<!-- end -->", re.DOTALL)
COSTS = {  # columns of measured.csv, by those of the benchmark
    **{"ms per step": "milliseconds", "times SimCSE": "time", "lowest": "lowest", "highest": "highest"},
    **{"memory, MB": "megabytes", "memory, times SimCSE": "memory"},
}


def measured() -> dict[str, dict[str, str]]:
    """Return the measured scores and costs by method."""
    with MEASURED.open(encoding="utf-8", newline="") as file:
        return {row["method"]: row for row in csv.DictReader(file)}


def cells(line: str) -> list[str]:
    """Return the cells of a row of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def reference_of(name: str) -> str:
    """Return the paper and the code of a method, its published and measured scores, and the cost of a step."""
    return f"{paper_of(PAPERS[name])}\n{scores_of(name)}"


def paper_of(method: Mapping[str, Any]) -> str:
    """Return the paper and the code of a method."""
    paper, code = method["paper"], method.get("code")
    sentences = [f"*{method['title']}*, {paper['authors']}, {paper['venue']} {paper['year']}"]
    if arxiv := paper.get("arxiv"):
        sentences[0] += f", [arXiv:{arxiv}](https://arxiv.org/abs/{arxiv})"
    if code:
        name, folder = code["repository"], f", folder {code['folder']}" if "folder" in code else ""
        sentences.append(f"Code: [{name}](https://github.com/{name}) at {code['commit']}{folder}")
    if note := method.get("note"):
        sentences.append(note[0].upper() + note[1:])
    return " ".join(f"{sentence}." for sentence in sentences) + "\n"


def scores_of(name: str) -> str:
    """Return the published and the measured scores of a method, and the cost of a step."""
    lines = []
    for setting in methods_file()["baselines"]:
        if scores := [score for score in published_scores()[name] if score.setting == setting]:
            used = {score.source for score in scores}
            figures = "; ".join(published(score, name_source=len(used) > 1) for score in scores)
            doubts = "".join(f". ?: {doubt}" for doubt in dict.fromkeys(score.doubt for score in scores) if doubt)
            end = f". Source: {used.pop()}" if len(used) == 1 else ""
            lines.append(f"- Published, {setting}: {figures}{end}{doubts}.\n")
    if row := measured().get(name):
        line = f"- Here: dev {row['dev']}, test {row['test']}"
        if row["difference"]:
            line += f"; dev {row['difference']}, time x{row['time']}, memory x{row['memory']}"
        lines.append(f"{line}.\n")
    return "".join(lines)


def published(score: PublishedScore, name_source: bool) -> str:
    """Return a published average; a question mark if it is not certain."""
    deviation = f"± {score.deviation:.2f}" if score.deviation else None
    source = f"({score.source})" if name_source else None
    name = ", ".join(filter(None, (score.model, score.variant and score.variant.partition(" (")[0])))
    return " ".join(filter(None, (name, f"{score.average:.2f}{'?' * bool(score.doubt)}", deviation, source)))


def methods_table() -> str:
    """Return the table of all pages of methods: paper, config, record of the official code, and scores."""
    lines = [["method", "paper", "`method=`", "code", "published", "here"], ["---"] * 6]
    for page in sorted(PAGES.glob("*.md")):
        name, title = page.stem, page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        link, paper = f"[{title}](methods/{name}.md)", "{authors} {year}".format(**PAPERS[name]["paper"])
        here = difference(measured().get(name, {}).get("difference", ""))
        equal = "equal" if (ROOT / f"tests/fidelity/records/{name}.safetensors").exists() else "–"
        lines.append([link, paper, f"`{name}`", equal, averages_of(name), here])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def difference(text: str) -> str:
    """Return a difference without its interval, `+0.51 [+0.20, +0.82]`, in bold if the interval excludes 0."""
    _, low, high = numbers(text) or (0.0, 0.0, 0.0)
    shown = text.partition(" ")[0]
    return f"**{shown}**" if low * high > 0 else shown or "–"


def numbers(text: str) -> list[float]:
    """Return a difference and the ends of its interval; empty for a method without one."""
    return [float(number) for number in re.findall(r"[-+]?[0-9.]+", text)]


@matplotlib.rc_context(STYLE)
def methods_figure() -> Figure:
    """Draw the measured differences from SimCSE with their intervals, and the published ones beside them."""
    measured_here = {name: numbers(row["difference"]) for name, row in measured().items() if row["difference"]}
    figure = Figure((WIDTH, 0.2 * len(measured_here) + 0.7), layout="constrained")
    here, there = figure.subplots(1, 2, sharey=True)
    for place, (name, (mean, low, high)) in enumerate(measured_here.items()):
        here.errorbar(mean, place, xerr=[[mean - low], [high - mean]], fmt="o", color="black", markersize=5)
        for setting, baseline in methods_file()["baselines"].items():
            published, of_simcse = (published_score(method, setting, "bert") for method in (name, baseline))
            if published and of_simcse:
                gain = published.average - of_simcse.average
                there.plot(gain, place, "o", color="black", markersize=5, markerfacecolor="white")
                break
    for axes in (here, there):
        axes.axvline(0, color="0.4", linewidth=0.8, zorder=0)
        axes.grid(axis="y", color="0.85", linewidth=0.5)
    here.set_yticks(range(len(measured_here)), [*measured_here])
    here.set_ylim(len(measured_here) - 0.5, -0.5)
    here.set_xlabel("measured difference from SimCSE\non STS-B dev, 95 % interval")
    there.set_xlabel("published difference with BERT-base,\nSTS average on test")
    return figure


def averages_of(name: str) -> str:
    """Return the first published averages of a method with BERT-base and RoBERTa-base, and whether they are supervised.

    A question mark marks an average that is not certain.
    """
    first = {score.model: score for score in reversed(published_scores()[name])}
    scores = [first.get(model) for model in ("BERT-base", "RoBERTa-base")]
    averages = "/".join(f"{score.average:.2f}{'?' * bool(score.doubt)}" if score else "–" for score in scores)
    return averages + " supervised" * any(score.setting == "supervised" for score in scores if score)


def updated(page: str, name: str | None = None) -> str:
    """Return a page with its generated parts up to date: that of a method, or the index."""

    def part(match: re.Match[str]) -> str:
        match match["name"]:
            case "methods":
                text = methods_table()
            case "sources":
                text = "".join(f"- {source}: {what}\n" for source, what in methods_file()["sources"].items())
            case _:
                text = reference_of(str(name)).rstrip() + "\n"
        return f"{match['name']} -->\n{text}<!-- end -->"

    return PART.sub(part, page)


def with_costs(rows: Mapping[str, Mapping[str, str]], benchmark: str) -> list[dict[str, str]]:
    """Return the rows of measured.csv with the costs of a benchmark's table."""
    head, _, *lines = (cells(line) for line in benchmark.splitlines() if line.startswith("|"))
    costs = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    return [
        {**row, **{own: costs[name][column] for column, own in COSTS.items() if name in costs}}
        for name, row in rows.items()
    ]


if __name__ == "__main__":
    for file in sys.argv[1:]:
        rows = with_costs(measured(), Path(file).read_text(encoding="utf-8"))
        with MEASURED.open("w", encoding="utf-8", newline="") as table:
            writer = csv.DictWriter(table, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    for path in [INDEX, *PAGES.glob("*.md")]:
        name = None if path == INDEX else path.stem
        path.write_text(updated(path.read_text(encoding="utf-8"), name), encoding="utf-8")
    FIGURE.write_bytes(png(methods_figure()))
