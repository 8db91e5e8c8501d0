"""Make a page of the records of benchmarks.findings: `python docs/findings.py [RECORDS [PAGE]]`.

The default is docs/findings.md. In a page that exists, only the parts between `<!-- NAME -->` and `<!-- end -->` are
updated: `summary`, `claims`, `spectrum` and `tables`. All other text is written by hand. Figures are written to the
folder `figures` beside the page.
"""

import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks is not installed

from benchmarks.findings import PLAN, RECORDS, read_records
from simcse_pl.evaluation.results import Correlation, Geometry, Result, StsScores
from simcse_pl.lab.figures import encoder_plane, run_plane
from simcse_pl.lab.published import ablation
from simcse_pl.lab.runs import TrainingTrajectory
from simcse_pl.lab.seed_groups import margin, read_sweeps
from simcse_pl.lab.sweep_figure import sweep_figure
from simcse_pl.lab.sweep_tables import sweep_table
from simcse_pl.runs import RESULTS_FILE

PAGE = Path(__file__).with_suffix(".md")
_PARTS = ("summary", "claims", "spectrum", "tables")
NEW_PAGE = "# The paper's findings\n"
NEW_PAGE += "".join(f"\n## {name.capitalize()}\n\n<!-- {name} -->\n<!-- end -->\n" for name in _PARTS)
NEW_PAGE += "\n![Training](figures/findings_paths.png)\n\n![Encoders](figures/findings_encoders.png)\n"
PART = re.compile(r"(?<=<!-- )(?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)
AT_EQUAL_UNIFORMITY = "alignment at equal uniformity"
LOWER = ("alignment", "uniformity", "eigenvalue", AT_EQUAL_UNIFORMITY)
VERDICTS = ("reproduced", "not reproduced", "undecided")
SPECTRA = {
    "dropout_path/0.1": "Dropout 0.1",
    "dropout_path/0.0": "No dropout",
    "random_weights/random weights": "From random weights",
}
SPECTRUM_HEAD = (
    "| step | score | uniformity | sum / n² | largest eigenvalue / n | largest eigenvalue / (sum / n) | negative |\n"
    "|--:|--:|--:|--:|--:|--:|--:|\n"
)
PATHS = {  # of figure 2, by table and row
    ("dropout_path", "0.1"): "dropout 0.1",
    ("dropout_path", "0.0"): "no dropout",
    ("dropout_path", "fixed 0.1"): "one mask",
    ("augmentation_path", "delete one word"): "delete one word",
}
ENCODERS = {  # of figure 3
    "before/table_6_pooling/unsupervised/CLS with MLP in training only": "untrained, [CLS]",
    "before/table_6_pooling/unsupervised/first-last avg.": "untrained, first-last average",
    "table_2_objective/one encoder/next sentence": "next sentence as positive",
    "table_3_dropout/fixed 0.1": "one mask",
    "table_3_dropout/0.1": "unsupervised SimCSE",
    "table_6_pooling/supervised/CLS with MLP in training only": "supervised SimCSE",
    "table_6_pooling/supervised/CLS with MLP": "supervised SimCSE, MLP kept",
}


def scores(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return a frame with the scores of each run (see findings.yaml), before and after training.

    Its column `seed` names the backbone, too, because only runs with the same one are paired.
    """
    rows = []
    for record in records:
        results = scored(record)
        sweep = results["sweep"]
        run = "/".join(sweep[name] for name in ("table", "column", "row") if sweep[name])
        transfer, path = results.get("transfer_dev", {}).values(), pd.DataFrame(record["path"])
        for name, metrics in ((run, results["best"]), (f"before/{run}", results["before"])):
            row = {"run": name, "seed": seed_of(record), "path": path, "dev": 100 * metrics["spearman"]}
            point = path.iloc[-1 if metrics is results["best"] else 0]
            row |= {score: point[score] for score in ("alignment", "uniformity")}
            row["eigenvalue"] = metrics["largest_eigenvalue"] / metrics["trace"]
            row["transfer"] = 100 * sum(transfer) / len(transfer) if transfer else math.nan
            rows.append(row)
    return pd.DataFrame(rows)


def scored(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a record; on 2 cores, with the scores of the last step in place of the best checkpoint's.

    Such a run has too few validations to select one by its score.
    """
    results, last = record["results"], record["path"][-1]
    if results["sweep"]["size"] != "mini":
        return results
    return results | {"best": last | {"spearman": last["score"]}, "test": {}}


def seed_of(record: Mapping[str, Any]) -> str:
    """Return the seed and the backbone of a record."""
    return f"{record['results']['seed']} {record['backbone']}"


def heading(table: str) -> str:
    """Return the heading of a table of the paper, or the name of another one."""
    about = ablation(table)
    return f"Table {about.number}: {about.varied}" if about else table.replace("_", " ").capitalize()


def sweep_of(table: str) -> str:
    """Return the table whose sweep, or sweep for 2 cores, a table comes from."""
    return str(PLAN["tables"][table].get("sweep", table)).removesuffix("_mini")


def anchor(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def papers_number(run: str, score: str) -> float:
    """Return the paper's number of a run; NaN if it has none."""
    table, *column, row = run.removeprefix("before/").split("/")
    numbers = ablation(sweep_of(table))
    if run.startswith("before/") or numbers is None or score not in ("dev", *numbers.scores):
        return math.nan
    name = numbers.row(row)
    return numbers.rows[name].get(column[0] if column else score, math.nan) if name else math.nan


def difference(frame: pd.DataFrame, claim: Mapping[str, Any], variant: str | None = None) -> pd.Series:
    """Return how much better the better run is, by seed; with `variant`, in that variant of the table."""
    score, runs = claim["score"], [claim["better"], claim["worse"]]
    if variant:
        runs = [run.replace(claim["better"].split("/")[0], variant) for run in runs]
    better, worse = (frame[frame.run == run].set_index("seed") for run in runs)
    if score == AT_EQUAL_UNIFORMITY:
        seeds = better.index.intersection(worse.index)
        gains = pd.Series([alignment_gain(better.path[seed], worse.path[seed]) for seed in seeds], dtype=float)
    else:
        gains = (better[score] - worse[score]) * (-1 if score in LOWER else 1)
    return gains.dropna()


def alignment_gain(better: pd.DataFrame, worse: pd.DataFrame) -> float:
    """Return how much lower the alignment is at the lowest uniformity that both runs reach, between two validations."""
    uniformity = max(better.uniformity.min(), worse.uniformity.min())
    alignment = []
    for path in (better, worse):
        falling = path[path.uniformity < path.uniformity.cummin().shift(fill_value=math.inf)][::-1]
        alignment.append(float(np.interp(uniformity, falling.uniformity, falling.alignment)))
    return alignment[1] - alignment[0]


def verdict(own: pd.Series, equal: float | None) -> str:
    """Return what the interval of the mean says of a claim."""
    if equal is not None:
        inside, outside = abs(own.mean()) + margin(own) < equal, abs(own.mean()) - margin(own) > equal
        return VERDICTS[0 if inside else 1 if outside else 2]
    return VERDICTS[2 if not abs(own.mean()) > margin(own) else 0 if own.mean() > 0 else 1]


def shown(own: pd.Series, digits: int) -> str:
    """Return the mean of differences and half the width of its interval."""
    return f"{own.mean():+.{digits}f} ± {margin(own):.{digits}f}"


def claims(frame: pd.DataFrame) -> tuple[str, dict[str, int]]:
    """Return a table for each group of claims that have two seeds or more, and the number of claims by verdict."""
    text, counts = "", dict.fromkeys(VERDICTS, 0)
    for group, own_claims in PLAN["claims"].items():
        rows = []
        for claim in ({"score": "dev"} | claim for claim in own_claims):
            score, own = claim["score"], difference(frame, claim)
            if len(own) < 2:  # one seed proves nothing
                continue
            found, digits = verdict(own, claim.get("equal")), 3 if score in LOWER else 2
            counts[found] += 1
            sweep = sweep_of(claim["better"].removeprefix("before/").split("/")[0])
            title = heading(sweep)
            notes = [found, *([claim["note"]] if "note" in claim else [])]
            for variant in claim.get("tried", ()):
                if len(gains := difference(frame, claim, variant)) > 1:
                    about = PLAN["tables"][variant]["about"]
                    notes.append(f"{about}: {shown(gains, digits)} ({len(gains)} seeds)")
            paper = papers_number(claim["better"], score) - papers_number(claim["worse"], score)
            cells = [
                claim["claim"],
                f"[{title.partition(':')[0]}](#{anchor(title)})" if ablation(sweep) else title,
                f"{paper:+.1f}" if math.isfinite(paper) else "–",
                shown(own, digits) + (f" ({score})" if score != "dev" else ""),
                str(len(own)),
                "; ".join(notes),
            ]
            rows.append(f"| {' | '.join(cells)} |\n")
        head = "| claim | where | paper | here | seeds | verdict |\n|:--|:--|--:|--:|--:|:--|\n"
        text += f"### {group.capitalize()}\n\n{head}{''.join(rows)}\n" if rows else ""
    return text, counts


def tables(records: Sequence[Mapping[str, Any]], figures: Path) -> str:
    """Return the tables of the report as Markdown, and write their figures."""
    text = ""
    with TemporaryDirectory() as folder:
        for sweep in (table for table in PLAN["tables"] if ablation(table) and sweep_of(table) == table):
            own = [scored(one) for one in records if one["results"]["sweep"]["table"] == sweep]
            for number, results in enumerate(own):
                job = Path(folder, sweep, str(number))
                job.mkdir(parents=True)
                (job / RESULTS_FILE).write_text(json.dumps(results), encoding="utf-8")
            for group in read_sweeps({sweep: Path(folder, sweep)}) if own else ():
                table = sweep_table(group).markdown()
                if own[0]["sweep"]["size"] == "mini":
                    table = table.replace(", which selects the checkpoint", " at the last step")  # see `scored`
                text += f"### {heading(sweep)}\n\n{table}\n"
                if figure := sweep_figure(group):
                    figure.savefig(figures / f"findings_{sweep}.png", dpi=150)
                    text += f"![Scores by {heading(sweep).partition(': ')[2]}](figures/findings_{sweep}.png)\n\n"
    return text


def spectrum(frame: pd.DataFrame) -> str:
    """Return what section 5 of the paper argues about, during training, as means over the seeds of a run.

    The second term of the loss bounds the sum of WW^T, the n x n matrix of cosines. Its largest eigenvalue is at least
    sum / n, and at most the sum if all entries are positive.
    """
    text = ""
    for run, title in SPECTRA.items():
        points = pd.concat(frame[frame.run == run].path.tolist() or [pd.DataFrame(columns=["step"])])
        if "gram_sum" not in points:
            continue
        n = points.trace  # the diagonal of cosines is 1
        shares = points[["step", "score", "uniformity"]].assign(
            mean=points.gram_sum / n**2,
            largest=points.largest_eigenvalue / n,
            ratio=points.largest_eigenvalue / (points.gram_sum / n),
            negative=100 * (1 - points.nonnegative_cosines),
        )
        rows = shares.groupby("step").mean().reset_index()
        text += f"**{title}**\n\n{SPECTRUM_HEAD}"
        for row in rows.itertuples():
            cells = f"{100 * row.score:.1f} | {row.uniformity:.2f} | {row.mean:.3f} | {row.largest:.3f}"
            text += f"| {row.step:.0f} | {cells} | {row.ratio:.3f} | {row.negative:.1f} % |\n"
        text += "\n"
    return text


def paths(records: Sequence[Mapping[str, Any]], figures: Path) -> None:
    """Write the figure of alignment and uniformity during training, the paper's figure 2, as means over seeds."""
    points = defaultdict(list)
    for record in records:
        sweep = record["results"]["sweep"]
        points[sweep["table"], sweep["row"]] += record["path"]
    means = {row: pd.DataFrame(points[row]).groupby("step").mean().reset_index() for row in PATHS if row in points}
    if figure := run_plane([TrainingTrajectory(PATHS[row], mean) for row, mean in means.items()]):
        figure.savefig(figures / "findings_paths.png", dpi=150)


def encoders(frame: pd.DataFrame, figures: Path) -> None:
    """Write the figure of encoders after training, the paper's figure 3, as means over seeds."""
    means = frame.groupby("run")[["dev", "alignment", "uniformity"]].mean()
    results = [
        Result(
            label=label,
            sts=[StsScores(task="STS-B", all=Correlation(spearman=own["dev"] / 100))],
            geometry=Geometry(alignment=own["alignment"], uniformity=own["uniformity"]),
        )
        for run, label in ENCODERS.items()
        if run in means.index
        for own in [means.loc[run].to_dict()]
    ]
    if figure := encoder_plane(results):
        figure.savefig(figures / "findings_encoders.png", dpi=150)


def updated(page: str, file: Path, figures: Path) -> str:
    """Return a page with its generated parts up to date with a file of records; write its figures to a folder."""
    records = read_records(file)
    frame = scores(records)
    made, counts = claims(frame)
    seconds = {(record["backbone"], record["config"]): record["seconds"] for record in records}
    runs, hours = len(seconds), sum(seconds.values()) / 3600  # of one thread, or of one GPU
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    summary = f"{sum(counts.values())} claims: {listed}. {runs} runs, {hours:.1f} hours of a core or of a GPU.\n"
    figures.mkdir(parents=True, exist_ok=True)
    parts = {"summary": summary, "claims": made, "spectrum": spectrum(frame), "tables": tables(records, figures)}
    paths(records, figures)
    encoders(frame, figures)
    return PART.sub(lambda part: f"{part['name']} -->\n{parts[part['name']]}<!-- end -->", page)


def main(records: str = str(RECORDS), page: str = str(PAGE)) -> None:
    """Update a page, or write a new one."""
    path = Path(page)
    text = path.read_text(encoding="utf-8") if path.is_file() else NEW_PAGE
    path.write_text(updated(text, Path(records), path.parent / "figures"), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
