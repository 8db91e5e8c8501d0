"""Make a page of the records of benchmarks.findings: `python docs/findings.py [RECORDS [PAGE]]`.

The default is docs/findings.md. Its text is that of benchmarks/findings_page.md, in which `<!-- NAME -->` stands for
what is computed from the records. Figures are written to the folder `figures` beside the page.
"""

import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import nct, t, ttest_1samp

sys.path.insert(0, str(Path(__file__).parents[1]))  # benchmarks is not installed

from benchmarks.findings import PLAN, PROTOCOL, RECORDS, expected_seconds, planned, read_records, row_of
from simcse_pl.evaluation.results import Correlation, Geometry, Result, StsScores
from simcse_pl.lab.figures import encoder_plane, run_plane
from simcse_pl.lab.published import ablation
from simcse_pl.lab.seed_groups import CONFIDENCE, margin, read_sweeps
from simcse_pl.lab.sweep_tables import sweep_table
from simcse_pl.results import SPEARMAN
from simcse_pl.run_folder import RESULTS_FILE

PAGE = Path(__file__).with_suffix(".md")
TEXT = RECORDS.with_name("findings_page.md")
PART = re.compile(r"<!-- (\w+) -->")
AT_EQUAL_UNIFORMITY = "alignment at equal uniformity"
LOWER = ("alignment", "uniformity", "eigenvalue", AT_EQUAL_UNIFORMITY)
REPRODUCED, CONTRADICTED, UNDECIDED = VERDICTS = ("reproduced", "contradicted", "undecided")
BEST, LAST = "best checkpoint", "last step"
POWER, MOST_SEEDS = 0.8, 999
SPECTRA = {
    "table_3_dropout/0.1": "Dropout 0.1",
    "table_3_dropout/0.0": "No dropout",
    "table_6_pooling/unsupervised/CLS with MLP": "The MLP kept",
    "table_d1_temperature/1": "Temperature 1, supervised",
    "random_weights/random weights": "From random weights",
}
SPECTRUM_HEAD = (
    "| run | step | score | uniformity | sum / n² | largest eigenvalue / n | largest eigenvalue / (sum / n) "
    "| negative |\n"
    "|:--|--:|--:|--:|--:|--:|--:|--:|\n"
)
PATHS = {  # of figure 2
    "table_3_dropout/0.1": "dropout 0.1",
    "table_3_dropout/0.0": "no dropout",
    "table_3_dropout/fixed 0.1": "one mask",
    "table_1_augmentation/delete one word": "delete one word",
}
ENCODERS = {  # of figure 3
    "before/table_3_dropout/0.1": "untrained",
    "table_2_objective/one encoder/next sentence": "next sentence as positive",
    "table_3_dropout/fixed 0.1": "one mask",
    "table_3_dropout/0.1": "unsupervised SimCSE",
    "table_6_pooling/supervised/CLS with MLP in training only": "supervised SimCSE, MLP in training only",
    "table_6_pooling/supervised/CLS with MLP": "supervised SimCSE",
}


def scores(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the scores of each run, at the best checkpoint and at the last step, and before training.

    Its column `seed` names the backbone, too, because only runs with the same one are paired.
    """
    rows = []
    for record in records:
        results, path = record["results"], path_of(record)
        for at, point in ((BEST, path[path.step == results["best_step"]].iloc[0]), (LAST, path.iloc[-1])):
            same = {"seed": f"{results['seed']} {record['backbone']}", "at": at, "path": path}
            rows.append({"run": row_of(results), **same, **point})
            rows.append({"run": f"before/{row_of(results)}", **same, **path.iloc[0]})
    return pd.DataFrame(rows)


def path_of(record: Mapping[str, Any]) -> pd.DataFrame:
    """Return the validations of a run, with `dev`, Spearman x 100, and the share of the largest `eigenvalue`."""
    path = pd.DataFrame(record["path"])
    return path.assign(dev=100 * path.score, eigenvalue=path.largest_eigenvalue / path.trace)


def regimes(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return what training gains, for each row, learning rate and number of steps of the protocol, as means over seeds.

    `gain` is that of the best validation over the start, and `fall` how far the last step is below it. `chosen` is the
    regime with the largest gain among those that fall no further than the protocol allows, or else the one that falls
    least.
    """
    rows = []
    for record in records:
        path, rate = path_of(record), float(record["results"]["settings"]["learning rate"])
        for steps in PLAN["protocol"]["steps"]:
            own = path[path.step <= steps]
            best = own.dev[own.step > 0].max()
            gain, fall = best - own.dev.iloc[0], best - own.dev.iloc[-1]
            rows.append({"row": row_of(record["results"]), "rate": rate, "steps": steps, "gain": gain, "fall": fall})
    means = pd.DataFrame(rows).groupby(["row", "rate", "steps"], sort=False).mean().reset_index()
    order = means.gain.where(means.fall <= PLAN["protocol"]["fall"], -100 - means.fall)
    return means.assign(chosen=means.index.isin(order.groupby(means.row).idxmax()))  # of equal ones, the shortest


def papers_number(run: str, score: str) -> float:
    """Return the paper's number of a run; NaN if it has none."""
    table, *column, row = run.removeprefix("before/").split("/")
    numbers = ablation(table)
    if run.startswith("before/") or numbers is None or score not in ("dev", *numbers.scores):
        return math.nan
    name = numbers.row(row)
    return numbers.rows[name].get(column[0] if column else score, math.nan) if name else math.nan


def difference(frame: pd.DataFrame, claim: Mapping[str, Any]) -> pd.Series:
    """Return how much better the better run is, by seed."""
    score = claim.get("score", "dev")
    better, worse = (frame[frame.run == claim[side]].set_index("seed") for side in ("better", "worse"))
    if better.index.has_duplicates or worse.index.has_duplicates:
        raise SystemExit(f"error: {claim['better']} or {claim['worse']} has two records of a seed")
    if score == AT_EQUAL_UNIFORMITY:
        seeds = better.index.intersection(worse.index)
        gains = pd.Series([alignment_gain(better.path[seed], worse.path[seed]) for seed in seeds], dtype=float)
    else:
        gains = (better[score] - worse[score]) * (-1 if score in LOWER else 1)
    return gains.dropna()


def alignment_gain(better: pd.DataFrame, worse: pd.DataFrame) -> float:
    """Return how much lower the alignment is at the lowest uniformity that both runs reach, between two validations.

    NaN if one of them starts below it.
    """
    uniformity = max(better.uniformity.min(), worse.uniformity.min())
    alignment = []
    for path in (better, worse):
        falling = path[path.uniformity < path.uniformity.cummin().shift(fill_value=math.inf)][::-1]
        alignment.append(float(np.interp(uniformity, falling.uniformity, falling.alignment, right=math.nan)))
    return alignment[1] - alignment[0]


def p_values(gains: pd.Series, equal: bool) -> tuple[float, float]:
    """Return the p-values of one-sided t-tests for a claim and for its opposite.

    If two runs should be `equal`, these are two one-sided tests of the margin (Schuirmann 1987), and the tests of a
    difference beyond it.
    """
    bound = PLAN["margin"] if equal else 0
    above, below = (ttest_1samp(gains, place, alternative="greater").pvalue for place in (bound, -bound))
    return (max(below, 1 - above), min(above, 1 - below)) if equal else (above, 1 - above)


def holm(values: pd.Series, tests: int) -> pd.Series:
    """Return p-values adjusted for a number of tests, of which `values` are some (Holm 1979)."""
    ordered = values.sort_values()
    return (ordered * np.arange(tests, tests - len(ordered), -1)).cummax().clip(upper=1)


def tested(frame: pd.DataFrame, at: str, seeds: int) -> pd.DataFrame:
    """Return the claims that have two seeds or more, with their differences, p-values and verdicts.

    There is no verdict with fewer than `seeds`. `fell` is whether a run of a claim is worse than its start.
    """
    rows, frame = [], frame[frame["at"] == at]
    means = frame.groupby("run").dev.mean()
    for group, claim in ((group, claim) for group, own in PLAN["claims"].items() for claim in own):
        gains = difference(frame, claim)
        if len(gains) > 1:
            holds, opposite = p_values(gains, claim.get("equal", False))
            runs = {claim[side].removeprefix("before/") for side in ("better", "worse")}
            fell = "score" not in claim and any(means[run] < means[f"before/{run}"] for run in runs)
            own = {"group": group, "claim": claim, "gains": gains, "fell": fell}
            rows.append(own | {"holds": holds, "opposite": opposite})
    found = pd.DataFrame(rows, columns=["group", "claim", "gains", "fell", "holds", "opposite"])
    sides = found[["holds", "opposite"]].astype(float)
    found["p"] = holm(2 * sides.min(axis=1), sum(map(len, PLAN["claims"].values())))  # the verdict may be either
    found["verdict"] = np.where(sides.holds < sides.opposite, REPRODUCED, CONTRADICTED)
    decided = (found.p < 1 - CONFIDENCE) & (found.gains.map(len) >= seeds)
    return found.assign(verdict=found.verdict.where(decided, UNDECIDED))


def shown(gains: pd.Series, claim: Mapping[str, Any]) -> str:
    """Return the mean of differences and half the width of its interval."""
    digits = 3 if claim.get("score") in LOWER else 2
    return f"{gains.mean():+.{digits}f} ± {margin(gains):.{digits}f}"


def claims(best: pd.DataFrame, last: pd.DataFrame) -> str:
    """Return a table of the claims, with their verdicts by both scores."""
    text = "| claim | paper | best checkpoint | verdict | last step | verdict | seeds needed |\n"
    text += "|:--|--:|--:|:--|--:|:--|--:|\n"
    for group in best.group.unique():
        text += f"| **{group.capitalize()}** | | | | | | |\n"
        for place, row in best[best.group == group].iterrows():
            claim, score = row.claim, row.claim.get("score", "dev")
            paper = papers_number(claim["better"], score) - papers_number(claim["worse"], score)
            cells = [claim["claim"] + (" †" if row.fell else "")]
            cells.append(f"{paper:+.1f}" if math.isfinite(paper) else "–")
            for own in (row, last.loc[place]):
                p = f"{own.p:.4f}" if own.p >= 1e-4 else "< 0.0001"
                cells += [shown(own.gains, claim), f"{own.verdict} ({p})"]
            text += f"| {' | '.join([*cells, seeds_to_decide(row)])} |\n"
    return text


def seeds_to_decide(row: pd.Series) -> str:
    """Return how many seeds would decide an undecided claim."""
    if row.verdict != UNDECIDED:
        return ""
    mean, deviation = row.gains.mean(), row.gains.std()
    effect = abs(abs(mean) - PLAN["margin"]) if row.claim.get("equal") else abs(mean)
    level = (1 - CONFIDENCE) / sum(map(len, PLAN["claims"].values()))
    return str(seeds_needed(effect, deviation, level) or f"> {MOST_SEEDS}")


def seeds_needed(effect: float, deviation: float, level: float) -> int | None:
    """Return the number of seeds with which a paired t-test finds an effect with the power 0.8.

    Args:
        effect: the mean of the differences, or its distance from the margin.
        deviation: the standard deviation of the differences.
        level: of a two-sided test.

    Returns:
        None for more than 999 seeds.
    """
    n = np.arange(2, MOST_SEEDS + 1)
    power = nct.sf(t.ppf(1 - level / 2, n - 1), n - 1, np.sqrt(n) * effect / deviation)
    enough = n[power >= POWER]
    return int(enough[0]) if len(enough) else None


def full_size() -> str:
    """Return the GPU hours of each table on the paper's data.

    Rows with equal runs share them.
    """
    runs: dict[str, dict[tuple[str, str], int]] = {sweep: {} for sweep in PLAN["tables"]}
    for job in planned("paper", seeds=[0]):
        runs[job.about["sweep"]["table"]][job.run] = expected_seconds("paper", job)
    distinct = {run: seconds for own in runs.values() for run, seconds in own.items()}
    count = len(PLAN["sizes"]["paper"]["seeds"])
    text = "| `--only` | runs | hours of an H200 |\n|:--|--:|--:|\n"
    for sweep, own in {**runs, "all": distinct}.items():
        name = "all" if sweep == "all" else f"`{sweep}`"
        text += f"| {name} | {count * len(own)} | {count * sum(own.values()) / 3600:.1f} |\n"
    return text


def tables(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the tables of the paper with these scores, as Markdown."""
    text = ""
    with TemporaryDirectory() as folder:
        for sweep in PLAN["tables"]:
            if not (about := ablation(sweep)):
                continue  # the paper has no such table
            own = [one["results"] for one in records if one["results"]["sweep"]["table"] == sweep]
            own = [results | {"validation": "STS-B"} for results in own]  # dev.csv is a part of it
            for number, results in enumerate(own):
                job = Path(folder, sweep, str(number))
                job.mkdir(parents=True)
                (job / RESULTS_FILE).write_text(json.dumps(results), encoding="utf-8")
            for group in read_sweeps({sweep: Path(folder, sweep)}) if own else ():
                table = sweep_table(group)
                left_out = ["dev before", "alignment", "uniformity", "difference on dev"]  # claims have differences
                cells = table.shown().drop(columns=left_out, errors="ignore")
                shown = replace(table, cells=cells, notes=[]).markdown().partition("\n\n")[2]  # without its title
                text += f"### Table {about.number}: {about.varied}\n\n{shown}\n"
    return text


def spectrum(frame: pd.DataFrame) -> str:
    """Return what section 5 of the paper argues about, before and after training, as means over the seeds of a run.

    The second term of the loss bounds the sum of WW^T, the n x n matrix of cosines. Its largest eigenvalue is at least
    sum / n, and at most the sum if all entries are positive.
    """
    text = SPECTRUM_HEAD
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
        for row in shares.groupby("step").mean().reset_index().iloc[[0, -1]].itertuples():
            cells = f"{100 * row.score:.1f} | {row.uniformity:.2f} | {row.mean:.3f} | {row.largest:.3f}"
            text += f"| {title} | {row.step:.0f} | {cells} | {row.ratio:.3f} | {row.negative:.1f} % |\n"
    return text


def paths(frame: pd.DataFrame, figures: Path) -> None:
    """Write the figure of alignment and uniformity during training, the paper's figure 2, as means over seeds."""
    runs = []
    for run, label in PATHS.items():
        if own := frame[(frame.run == run) & (frame["at"] == LAST)].path.tolist():
            points = pd.concat(own).groupby("step").mean().reset_index()
            runs.append(SimpleNamespace(label=label, points=points, monitor=SPEARMAN))
    if figure := run_plane(runs):
        figure.savefig(figures / "findings_paths.png", dpi=150)


def encoders(frame: pd.DataFrame, figures: Path) -> None:
    """Write the figure of encoders after training, the paper's figure 3, as means over seeds."""
    means = frame[frame["at"] == BEST].groupby("run")[["dev", "alignment", "uniformity"]].mean()
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


def regime(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the regimes that the protocol chooses from, with the chosen ones in bold."""
    steps = PLAN["protocol"]["steps"]
    text = "| row | learning rate |" + "".join(f" gain, {number} steps | fall |" for number in steps)
    text += "\n|:--|--:|" + "--:|--:|" * len(steps) + "\n"
    for (row, rate), own in regimes(records).groupby(["row", "rate"]):
        cells = [row, f"{rate:g}"]
        for one in own.itertuples():
            gain = f"{one.gain:+.2f}"
            cells += [f"**{gain}**" if one.chosen else gain, f"{one.fall:.2f}"]
        text += f"| {' | '.join(cells)} |\n"
    return text


def decoder(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the runs from a decoder, as means over seeds, and what dropout 0.1 gains with the same seeds.

    The runs that the learning rate was chosen by come first.
    """
    groups = defaultdict(list)
    for record in records:
        seed, rate = record["results"]["seed"], record["results"]["settings"]["learning rate"]
        groups[seed not in PLAN["protocol"]["seeds"], float(rate)].append(record)
    text = "| dropout | learning rate | seeds | best checkpoint | gain of 0.1 | last step | gain of 0.1 | "
    text += "alignment | uniformity |\n|:--|--:|:--|--:|--:|--:|--:|--:|--:|\n"
    for (_, rate), own in sorted(groups.items()):
        frame = scores(own).set_index("seed")
        of_run = dict([*frame.groupby(["run", "at"], sort=False)])
        for run in (run for run, at in of_run if at == BEST and not run.startswith("before/")):
            cells = [run.rpartition("/")[2], f"{rate:g}"]
            cells.append(", ".join(sorted(seed.split()[0] for seed in of_run[run, BEST].index)))
            for at in (BEST, LAST):
                gains = (of_run["table_3_dropout/0.1", at].dev - of_run[run, at].dev).dropna()
                cells += [f"{of_run[run, at].dev.mean():.1f}", shown(gains, {}) if gains.any() else "–"]
            cells += [f"{of_run[run, LAST][name].mean():.2f}" for name in ("alignment", "uniformity")]
            text += f"| {' | '.join(cells)} |\n"
    return text


def summary(best: pd.DataFrame, last: pd.DataFrame, records: Sequence[Mapping[str, Any]], seeds: int) -> str:
    """Return how many claims have which verdict, and how the runs were made."""
    lines = [f"**{len(best)} claims.**"]
    for at, own in ((BEST, best), (LAST, last)):
        counts = own.verdict.value_counts()
        lines.append(f"At the {at}: {', '.join(f'{counts.get(name, 0)} {name}' for name in VERDICTS)}.")
    fewer = int((best.gains.map(len) < seeds).sum())
    no_verdict = f"{fewer} of them have fewer than {seeds} seeds so far, and no verdict."
    lines.append(no_verdict if fewer else f"All have {seeds} seeds.")
    runs = {(record["backbone"], record["config"]): record for record in records}.values()
    lines.append(f"{len(runs)} runs took {sum(run['seconds'] for run in runs) / 3600:.1f} hours.")
    for name in ("device", "precision", "versions"):
        values = {run["results"]["settings"][name] for run in runs}
        lines.append(f"{name.capitalize()}: {'; '.join(sorted(values))}.")
    return "\n".join(lines) + "\n"


def page(file: Path, figures: Path) -> str:
    """Return the page of a file of records; write its figures to a folder."""
    records = read_records(file)
    frame = scores(records)
    seeds = len(PLAN["sizes"][records[0]["results"]["sweep"]["size"] or "paper"]["seeds"])
    best, last = (tested(frame, at, seeds) for at in (BEST, LAST))
    figures.mkdir(parents=True, exist_ok=True)
    parts = {
        "summary": summary(best, last, records, seeds),
        "regime": regime(read_records(PROTOCOL)),
        "claims": claims(best, last),
        "full_size": full_size(),
        "spectrum": spectrum(frame[frame["at"] == LAST]),
        "decoder": decoder(read_records(PROTOCOL.with_name("findings_decoder.jsonl"))),
        "tables": tables(records),
    }
    paths(frame, figures)
    encoders(frame, figures)
    return PART.sub(lambda part: parts[part[1]].rstrip("\n"), TEXT.read_text(encoding="utf-8"))


def main(records: str = str(RECORDS), path: str = str(PAGE)) -> None:
    """Write a page."""
    text = page(Path(records), Path(path).parent / "figures")
    Path(path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
