"""The HTML page: runs, their curves and scores, sweeps and neighbours, with all scripts in one file."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import matplotlib
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex

from simcse_pl.reports.figures.style import COLOURS
from simcse_pl.reports.html.curves import metric_groups
from simcse_pl.reports.html.parallel import parallel_coordinates
from simcse_pl.reports.html.runs import Run, options_in_common, runs_table
from simcse_pl.reports.sweeps.seed_groups import SeedGroups, group_by_seed
from simcse_pl.reports.sweeps.sweep_results import Sweep, differing
from simcse_pl.reports.sweeps.sweep_tables import sweep_tables
from simcse_pl.results.metrics import decimals, factor
from simcse_pl.results.neighbourhood import Neighbourhood
from simcse_pl.results.run_files import VALIDATION_PREFIXES
from simcse_pl.utils.errors import UserError

# Without the brightest end, which is hard to see on white.
_SHADES = tuple(to_hex(colour) for colour in matplotlib.colormaps["viridis"](np.linspace(0, 0.9, 100)))


def page(runs: Sequence[Run], sweeps: Sequence[Sweep], neighbourhood: Neighbourhood) -> str:
    """Return the HTML.

    All names are escaped. A content security policy forbids other scripts and any network access.

    Args:
        runs: all runs, those of sweeps included.
        sweeps: in the order of the runs' indices.
        neighbourhood: nearest neighbours of some sentences.

    Raises:
        UserError: Plotly is not installed.
    """
    groups = [group_by_seed(sweep) for sweep in sweeps]
    environment = Environment(
        loader=PackageLoader("simcse_pl.reports.html", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    data = _data(runs, groups)
    template = environment.get_template("page.html")
    return template.render(
        title=", ".join([own.title for own in groups] + [run.job.name for run in runs if run.sweep is None]),
        runs=runs,
        runs_table=runs_table(runs),
        common=options_in_common(runs),
        sweeps=[(own, sweep_tables(own), drawn) for own, drawn in zip(groups, data["parallel"], strict=True)],
        metric_groups=metric_groups((run.curves for run in runs), list(dict.fromkeys(run.monitor for run in runs))),
        validation_prefixes=VALIDATION_PREFIXES,  # the other curves are noisy, so that smoothing helps
        neighbourhood=neighbourhood,
        data=data,
        nonce=hashlib.sha256(repr(data).encode()).hexdigest()[:32],  # the same runs give the same page
        plotly=Markup(_plotly()),
    )


def _data(runs: Sequence[Run], groups: Sequence[SeedGroups]) -> dict[str, Any]:
    """Return the data that the scripts of the page draw."""
    varied = differing([run.job for run in runs])
    drawn = [parallel_coordinates(own) for own in groups]
    return {
        "runs": [
            {
                "label": run.job.name,
                "sweep": run.sweep,
                "dev": run.dev,
                "monitor": run.monitor,
                "factor": factor(run.monitor),
                "decimals": decimals(run.monitor),
                "options": {name: run.job.value(name) for name in varied},
                "curves": {name: asdict(curves) for name, curves in run.curves.items()},
            }
            for run in runs
        ],
        "parallel": [own and asdict(own) for own in drawn],
        "options": varied,
        "colours": COLOURS,
        "shades": _SHADES,
    }


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UserError("--html needs Plotly: pip install plotly") from None
    return str(get_plotlyjs())
