"""Runs and sweeps as one HTML page that works offline: tables, parallel coordinates, and linked curves."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.colors import qualitative, sample_colorscale
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from simcse_pl.reports.sweeps.seed_groups import ROW, Sweep, read_sweeps
from simcse_pl.reports.sweeps.sweep_results import (
    Job,
    differing,
    is_sweep,
    read_job,
    same_options,
    score_names,
)
from simcse_pl.reports.sweeps.sweep_tables import sweep_table
from simcse_pl.reports.tables.score_tables import failure_notes
from simcse_pl.results.metrics import decimals
from simcse_pl.results.run_files import CURVES_FILE, read_curves
from simcse_pl.utils.tables import Table
from simcse_pl.utils.text import as_number

_POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
_FIRST = ("val/spearman", "val/alignment", "val/uniformity", "train/loss")
_GROUPS = ("val", "geometry", "train", "speed")  # in the order of the page
_PLANE = ("val/uniformity", "val/alignment")
_SCALE = [[0, "#440154"], [0.5, "#21918c"], [1, "#bddf26"]]  # viridis without its end, which is hard to see on white
_UNKNOWN = "#b0b0b0"
_HEIGHT = 300  # pixels of a chart
_MAX_TICKS = 8  # values of an option; more numbers are on a scale


def page(folders: Mapping[str, str | Path]) -> str:
    """Return the HTML of training runs and sweeps.

    The page has Plotly's script, and a content security policy that forbids network access.

    Args:
        folders: folders of runs and sweeps by label. With several sweeps, the sweep's label precedes the number of a
            job.

    Raises:
        UserError: no job of a sweep has results, or a file is damaged.
    """
    sweeps = read_sweeps({label: path for label, path in folders.items() if is_sweep(path)})
    jobs = [job for sweep in sweeps for job in sweep.jobs]
    jobs += [read_job(Path(path), label) for label, path in folders.items() if not is_sweep(path)]
    parts, charts = [_html_of(runs_table(jobs))], []
    for sweep in sweeps:
        parts.append(_html_of(sweep_table(sweep)))
        if lines := parallel_coordinates(sweep):
            charts.append(lines)
    charts.append(curves(jobs))
    for number, chart in enumerate(charts):
        parts.append(chart.to_html(full_html=False, include_plotlyjs=False, div_id=f"chart{number}"))
    title = html.escape(", ".join(folders))
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><script>{get_plotlyjs()}</script></head>'
        f'<body style="font-family: sans-serif"><h1>{title}</h1>{"".join(parts)}</body></html>\n'
    )


def runs_table(jobs: Sequence[Job]) -> Table:
    """Return a table with one row per run: the options in which runs differ, and scores."""
    finished = [job.run for job in jobs if job.run]
    frame = pd.DataFrame({"run": [job.name for job in jobs], "state": [job.state for job in jobs]})
    for name in differing(jobs):
        frame[name] = [job.value(name) for job in jobs]
    scores = [
        {**job.run.scores, "before": job.run.score(job.run.before), "best step": job.run.best_step} if job.run else {}
        for job in jobs
    ]
    frame = frame.join(pd.DataFrame(scores, dtype=float).dropna(axis="columns", how="all"))
    digits = dict.fromkeys(("dev", "test", "before"), max((decimals(run.monitor) for run in finished), default=2))
    digits |= {"alignment": 3, "uniformity": 3, "best step": 0}
    validations = " or ".join(dict.fromkeys(run.validation for run in finished))
    notes = [f"dev: {score_names(finished)} on {validations}; before: dev before training"] if finished else []
    notes += [
        f"all runs: {same_options(jobs, 'model')}",
        *failure_notes({job.name: job.run.failed for job in jobs if job.run}),
    ]
    return Table("runs", "Runs", frame, {name: digits.get(name, 2) for name in frame}, notes)


def parallel_coordinates(sweep: Sweep) -> go.Figure | None:
    """Return a line per job from its options to its scores; None with fewer than two scores on dev."""
    runs = sweep.runs.dropna(subset="dev")
    if len(runs) < 2:
        return None
    jobs = [job for job in sweep.jobs if job.name in runs.index]
    names = {ROW: sweep.paper.varied} if sweep.paper else {}
    axes = [_axis(names.get(name, name), [job.value(name) for job in jobs]) for name in differing(jobs)]
    runs = runs.loc[[job.name for job in jobs]]
    scores = runs[["alignment", "uniformity", "test", "dev"]].dropna(axis="columns")
    axes += [{"label": name, "values": scores[name]} for name in scores]
    line = {
        "color": runs["dev"],
        "colorscale": _SCALE,
        "showscale": True,
        "reversescale": sweep.results[0].mode == "min",
    }
    title = f"{sweep.title}: one line per job. Drag along an axis to select jobs"
    return go.Figure(go.Parcoords(dimensions=axes, line=line), {"title": title, "height": 1.5 * _HEIGHT})


def _axis(label: str, values: Sequence[str]) -> dict[str, object]:
    """Return the axis of an option: its values evenly spaced, numbers before names; many numbers on a scale."""
    numbers = [as_number(value) for value in values]
    if None not in numbers and len({*numbers}) > _MAX_TICKS:
        return {"label": label, "values": numbers}
    order = sorted({*values}, key=lambda value: (as_number(value) is None, as_number(value) or 0, value))
    places = [order.index(value) for value in values]
    return {"label": label, "values": places, "tickvals": [*range(len(order))], "ticktext": order}


def curves(jobs: Sequence[Job]) -> go.Figure:
    """Return a chart per metric, and alignment against uniformity; a click in the legend hides a run in all charts."""
    read = {job.name: read_curves(job.folder) for job in jobs if (job.folder / CURVES_FILE).is_file()}
    metrics = _metrics(read.values())
    drawn = [("step", metric) for metric in metrics] + [_PLANE] * ({*_PLANE} <= {*metrics})
    rows = max(1, math.ceil(len(drawn) / 2))
    titles = [y if x == "step" else "alignment against uniformity" for x, y in drawn]
    spacing = {"vertical_spacing": 0.25 / rows, "horizontal_spacing": 0.07}
    figure = make_subplots(rows, 2, subplot_titles=titles, **spacing)
    colours, in_legend = _colours(jobs), set()
    for place, (x, y) in enumerate(drawn):
        for name, frame in read.items():
            points = frame.reindex(columns=[x, y]).dropna()
            if points.empty:
                continue
            group = {"name": html.escape(name), "legendgroup": name, "showlegend": name not in in_legend}
            look = {"mode": "lines" if len(points) > 50 else "lines+markers", "line_color": colours[name]}
            figure.add_scatter(x=points[x], y=points[y], **group, **look, row=place // 2 + 1, col=place % 2 + 1)
            in_legend.add(name)
        if x == "step":
            figure.update_xaxes(matches="x", row=place // 2 + 1, col=place % 2 + 1)
    legend = {"title": "run (click: hide;<br>double click: show alone)"}
    title = "Curves by optimizer step, coloured by the score on dev (bright is high)"
    layout = {"height": _HEIGHT * rows + 150, "title": title, "legend": legend, "template": "plotly_white"}
    return figure.update_layout(layout)


def _metrics(read: Iterable[pd.DataFrame]) -> list[str]:
    """Return the metrics to draw, the most important first; test scores are in the table of runs."""
    names = {name for frame in read for name in frame.columns if name not in ("epoch", "step") and name[:5] != "test/"}
    order = [*_GROUPS, *_FIRST]
    places = {part: place for place, part in enumerate(order)}
    return sorted(names, key=lambda n: (places.get(n.partition("/")[0], 99), places.get(n, 99), n))


def _colours(jobs: Sequence[Job]) -> dict[str, str]:
    """Return the colour of each run by its score on dev; runs have different colours if fewer than two have a score."""
    dev = pd.Series({job.name: job.run.scores["dev"] if job.run else math.nan for job in jobs})
    if dev.nunique() < 2:
        palette = qualitative.Plotly
        return {name: palette[number % len(palette)] for number, name in enumerate(dev.index)}
    shares = (dev - dev.min()) / (dev.max() - dev.min())
    scale = [colour for _, colour in _SCALE]
    return {
        name: _UNKNOWN if math.isnan(share) else sample_colorscale(scale, [share])[0] for name, share in shares.items()
    }


def _html_of(table: Table) -> str:
    shown = table.shown().to_html(index=False, border=0, justify="left").replace("<table", '<table cellpadding="5"', 1)
    notes = "".join(f"<p><small>{html.escape(note)}</small></p>" for note in table.notes)
    return f"<h2>{html.escape(table.title)}</h2>{shown}{notes}"
