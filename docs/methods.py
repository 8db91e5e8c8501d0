"""Update the generated parts of docs/methods.md: `python docs/methods.py [METHODS.md of benchmarks.methods]`.

These parts stand between `<!-- NAME -->` and `<!-- end -->`: `overview`, `costs`, and one for each method. All other
text is written by hand.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from simcse_pl.reports.methods import PublishedScore, baselines, published_scores, sources

PAGE = Path(__file__).with_suffix(".md")
ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf" / "method"
PAPERS: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "simcse_pl" / "reports" / "methods.yaml"))["methods"]
PART = re.compile(r"(?<=<!-- )(?P<name>\w+) -->\n(?P<text>.*?)<!-- end -->", re.DOTALL)
OVERVIEW_MODELS = ("BERT-base", "RoBERTa-base")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    first, *others = (f"| {' | '.join(line)} |\n" for line in [head, *rows])
    return "".join([first, "|---" * len(head) + "|\n", *others])


def reference(paper: dict[str, Any]) -> str:
    """Return the paper and the code of a method."""
    sentences = [f"*{paper['title']}*, {paper['authors']}, {paper['venue']} {paper['year']}"]
    if arxiv := paper["arxiv"]:
        sentences[0] += f", [arXiv:{arxiv}](https://arxiv.org/abs/{arxiv})"
    if code := paper["repository"]:
        folder = f", folder {paper['folder']}" if "folder" in paper else ""
        sentences.append(f"Code: [{code}](https://github.com/{code}) at {paper['commit']}{folder}")
    if note := paper.get("note"):
        sentences.append(note[0].upper() + note[1:])
    return "".join(f"{sentence}. " for sentence in sentences).rstrip() + "\n"


def remark(score: PublishedScore) -> str:
    """Return a remark on a score: its standard deviation, a note, and why it is not certain."""
    spread = f"the average has a standard deviation of {score.deviation:.2f}" if score.deviation else None
    doubt = f"not certain: {score.doubt}" if score.doubt else None
    return "; ".join(filter(None, (spread, score.note, doubt)))


def scores(published: Sequence[PublishedScore]) -> str:
    """Return the published scores of a method; empty without any."""
    if not published:
        return ""
    columns = next((list(one.scores) for one in published if one.scores), ["Avg"])
    rows = []
    for one in published:
        figures = {**dict.fromkeys(columns, "–"), **{task: f"{x:.2f}" for task, x in one.scores.items()}}
        figures["Avg"] = f"{one.average:.2f}"
        name = ", ".join(filter(None, (one.model, one.setting, one.variant)))
        rows.append([name, *figures.values(), one.source, remark(one)])
    head = ["published scores", *columns, "source", "remark"]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return "\n" + table(head, rows)


def overview(page: str) -> str:
    """Return the table of all methods in conf/method, with links to their sections and their published averages."""
    titles = {name: title for title, name in re.findall(r"^#+ (.*)\n\n<!-- (\w+) -->$", page, flags=re.MULTILINE)}
    rows = []
    for name in sorted(file.stem for file in CONF.glob("*.yaml")):
        if name not in PAPERS or name in baselines().values():
            continue
        averages = []
        for model in OVERVIEW_MODELS:
            own = [one for one in published_scores()[name] if one.model == model]
            first = next((one for one in own if one.setting == "unsupervised"), next(iter(own), None))
            supervised = ", supervised" if first and first.setting == "supervised" else ""
            averages.append(f"{first.average:.2f}{'?' * bool(first.doubt)}{supervised}" if first else "–")
        title = titles.get(name, name)
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        link = f"[{title}](#{anchor})" if name in titles else title
        rows.append([link, f"`{name}`", f"{PAPERS[name]['authors']} {PAPERS[name]['year']}", *averages])
    return table(["method", "`method=`", "paper", *OVERVIEW_MODELS], rows)


def updated(page: str) -> str:
    """Return the page with its generated parts up to date; measured costs stay as they are."""

    def part(found: re.Match[str]) -> str:
        name, text = found["name"], found["text"]
        if name == "overview":
            text = overview(page)
        elif name == "sources":
            text = "".join(f"- {source}: {what}\n" for source, what in sources().items())
        elif name != "costs":
            text = reference(PAPERS[name]) + scores(published_scores()[name])
        return f"{name} -->\n{text}<!-- end -->"

    return PART.sub(part, page)


def with_costs(page: str, measured: str) -> str:
    """Return the page with another table of costs."""
    return PART.sub(lambda part: f"costs -->\n{measured}<!-- end -->" if part["name"] == "costs" else part[0], page)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    for file in sys.argv[1:]:
        page = with_costs(page, Path(file).read_text(encoding="utf-8"))
    PAGE.write_text(updated(page), encoding="utf-8")
