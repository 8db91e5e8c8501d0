"""The table and the figure of each sweep in some folders."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_figure import sweep_figure
from simcse_pl.reports.sweeps.sweep_results import read_sweeps
from simcse_pl.reports.sweeps.sweep_tables import sweep_table
from simcse_pl.utils.tables import Table


def sweep_report(folders: Mapping[str, str | Path]) -> tuple[list[Table], dict[str, Figure]]:
    """Return the tables, and the figures by the names of their files.

    Raises:
        UserError: see read_sweeps.
    """
    groups = [group_by_seed(sweep) for sweep in read_sweeps(folders)]
    names = ["sweep"] if len(groups) == 1 else [f"sweep_{number}" for number, _ in enumerate(groups, 1)]
    figures = {name: sweep_figure(group) for name, group in zip(names, groups, strict=True)}
    tables: list[Table] = [sweep_table(group, name) for name, group in zip(names, groups, strict=True)]
    return tables, {name: figure for name, figure in figures.items() if figure}
