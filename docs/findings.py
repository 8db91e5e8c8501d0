"""Update the generated parts of docs/findings.md: `python docs/findings.py [RECORDS]`, those of benchmarks.findings.

These parts stand between `<!-- NAME -->` and `<!-- end -->`: `summary`, `claims` and `tables`. All other text is
written by hand. Figures are written to docs/figures.
"""

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks is not installed

from benchmarks.findings import PLAN, RECORDS, read_records
from simcse_pl.reports.figures.alignment_uniformity import run_plane
from simcse_pl.reports.paper import ablation
from simcse_pl.reports.sweeps.paired import Difference
from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_figure import sweep_figure
from simcse_pl.reports.sweeps.sweep_results import read_sweeps
from simcse_pl.reports.sweeps.sweep_tables import sweep_tables
from simcse_pl.results.run_files import RESULTS_FILE
from simcse_pl.results.trajectory import TrainingTrajectory

PAGE = Path(__file__).with_suffix(".md")
FIGURES = Path(__file__).with_name("figures")
PART = re.compile(r"(?<=<!-- )(?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)
LOWER = ("alignment", "uniformity", "eigenvalue")
VERDICTS = ("reproduced", "not reproduced", "undecided")
PATHS = {  # of figure 2, by table and row
    ("table_3_dropout", "0.1"): "dropout 0.1",
    ("table_3_dropout", "0.0"): "no dropout",
    ("table_3_dropout", "fixed 0.1"): "one mask",
    ("table_1_augmentation", "delete one word"): "delete one word",
}


def scores(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return a frame with the scores of each run (see findings.yaml), before and after training."""
    rows = []
    for record in records:
        results = record["results"]
        sweep = results["sweep"]
        run = "/".join(sweep[name] for name in ("table", "column", "row") if sweep[name])
        transfer = results.get("transfer_dev", {}).values()
        for name, metrics in ((run, results["best"]), (f"before/{run}", results["before"])):
            row = {"run": name, "seed": results["seed"], "dev": 100 * metrics["spearman"]}
            point = record["path"][-1 if metrics is results["best"] else 0]
            row |= {score: point[score] for score in ("alignment", "uniformity")}
            row["eigenvalue"] = metrics["largest_eigenvalue"] / metrics["trace"]
            row["transfer"] = 100 * sum(transfer) / len(transfer) if transfer else math.nan
            rows.append(row)
    return pd.DataFrame(rows)


def heading(table: str) -> str:
    """Return the heading of a table."""
    about = ablation(table)
    assert about is not None
    return f"Table {about.number}: {about.varied}"


def anchor(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def papers_number(run: str, score: str) -> float:
    """Return the paper's number of a run; NaN if it has none."""
    table, *column, row = run.removeprefix("before/").split("/")
    numbers = ablation(table)
    if run.startswith("before/") or numbers is None or score not in ("dev", *numbers.scores):
        return math.nan
    name = numbers.row(row)
    return numbers.rows[name].get(column[0] if column else score, math.nan) if name else math.nan


def difference(frame: pd.DataFrame, claim: Mapping[str, Any]) -> Difference:
    """Return how much better the better run is, paired over seeds."""
    score = claim.get("score", "dev")
    better, worse = (frame[frame.run == claim[side]].set_index("seed")[score] for side in ("better", "worse"))
    return Difference(((better - worse) * (-1 if score in LOWER else 1)).dropna())


def verdict(own: Difference, equal: float | None) -> str:
    """Return what the interval says of a claim."""
    if equal is not None:
        inside, outside = abs(own.mean) + own.margin < equal, abs(own.mean) - own.margin > equal
        return VERDICTS[0 if inside else 1 if outside else 2]
    return VERDICTS[2 if not abs(own.mean) > own.margin else 0 if own.mean > 0 else 1]


def claims(frame: pd.DataFrame) -> tuple[str, dict[str, int]]:
    """Return a table for each group of claims that have two seeds or more, and the number of claims by verdict."""
    text, counts = "", dict.fromkeys(VERDICTS, 0)
    for group, own_claims in PLAN["claims"].items():
        rows = []
        for claim in own_claims:
            score, own = claim.get("score", "dev"), difference(frame, claim)
            if own.count < 2:  # one seed proves nothing
                continue
            found = verdict(own, claim.get("equal"))
            counts[found] += 1
            title = heading(claim["better"].split("/")[0])
            paper = papers_number(claim["better"], score) - papers_number(claim["worse"], score)
            digits = 3 if score in LOWER else 2
            cells = [
                claim["claim"],
                f"[{title.partition(':')[0]}](#{anchor(title)})",
                f"{paper:+.1f}" if math.isfinite(paper) else "–",
                f"{own.mean:+.{digits}f} ± {own.margin:.{digits}f}" + (f" ({score})" if score != "dev" else ""),
                str(own.count),
                f"{found}: {claim['note']}" if "note" in claim else found,
            ]
            rows.append(f"| {' | '.join(cells)} |\n")
        head = f"### {group.capitalize()}\n\n| claim | where | paper | here | seeds | |\n|:--|:--|--:|--:|--:|:--|\n"
        text += f"{head}{''.join(rows)}\n" if rows else ""
    return text, counts


def tables(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the tables of the report as Markdown, and write their figures."""
    text = ""
    with TemporaryDirectory() as folder:
        for sweep in PLAN["sweeps"]:
            own = [one["results"] for one in records if one["results"]["sweep"]["table"] == sweep]
            for number, results in enumerate(own):
                job = Path(folder, sweep, str(number))
                job.mkdir(parents=True)
                (job / RESULTS_FILE).write_text(json.dumps(results), encoding="utf-8")
            for group in map(group_by_seed, read_sweeps({sweep: Path(folder, sweep)})) if own else ():
                text += (
                    f"### {heading(sweep)}\n\n" + "\n".join(table.markdown() for table in sweep_tables(group)) + "\n"
                )
                if figure := sweep_figure(group):
                    figure.savefig(FIGURES / f"findings_{sweep}.png", dpi=150)
                    text += f"![Scores by {heading(sweep).partition(': ')[2]}](figures/findings_{sweep}.png)\n\n"
    return text


def paths(records: Sequence[Mapping[str, Any]]) -> None:
    """Write the figure of alignment and uniformity during training, the paper's figure 2, of one seed."""
    runs = {}
    for record in records:
        results = record["results"]
        row = results["sweep"]["table"], results["sweep"]["row"]
        if results["seed"] == 0 and row in PATHS:
            runs[row] = TrainingTrajectory(PATHS[row], pd.DataFrame(record["path"]))
    if figure := run_plane([runs[row] for row in PATHS if row in runs]):
        figure.savefig(FIGURES / "findings_paths.png", dpi=150)


def updated(page: str, file: Path = RECORDS) -> str:
    """Return the page with its generated parts up to date with a file of records."""
    records = read_records(file)
    made, counts = claims(scores(records))
    runs = len({own["config"] for own in records})
    hours = sum({own["config"]: own["seconds"] for own in records}.values()) / 3600  # of runs with one thread each
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    summary = f"{sum(counts.values())} claims: {listed}. {runs} runs, {hours:.1f} core hours.\n"
    parts = {"summary": summary, "claims": made, "tables": tables(records)}
    paths(records)
    return PART.sub(lambda part: f"{part['name']} -->\n{parts[part['name']]}<!-- end -->", page)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8"), *map(Path, sys.argv[1:])), encoding="utf-8")
