"""Compare encoders, training runs and sweeps in tables and figures, or in one HTML page."""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from simcse_pl.reports.evaluation_report import encoder_figures, encoder_tables, save
from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_figure import sweep_figure
from simcse_pl.reports.sweeps.sweep_results import is_sweep, read_job, read_sweeps
from simcse_pl.reports.sweeps.sweep_tables import sweep_table
from simcse_pl.reports.tables.run_table import run_table
from simcse_pl.results.evaluation_results import Result, read
from simcse_pl.results.metrics import AGGREGATIONS, Aggregation
from simcse_pl.results.trajectory import TrainingTrajectory, run_label
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import write_text
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import show


def write_report(folders: Mapping[str, str], output: str, aggregation: Aggregation) -> None:
    """Print tables, save tables and figures, and print the paths of the files.

    Args:
        folders: folders of evaluations, training runs and sweeps, by label.
        output: the folder for tables and figures.
        aggregation: how to combine the scores of the subsets of STS12 to STS16.
    """
    sweeps = {label: folder for label, folder in folders.items() if is_sweep(folder)}
    results: list[Result] = []
    runs: list[TrainingTrajectory] = []
    for label, folder in folders.items():
        if label not in sweeps:
            match read(folder):
                case Result() as result:
                    results.append(result.model_copy(update={"label": label}))
                case TrainingTrajectory() as run:
                    runs.append(dataclasses.replace(run, label=label))
    tables = [*encoder_tables(results, aggregation), *tables_of_runs_without_path(runs, folders)]
    figures = encoder_figures(results, runs, aggregation)
    groups = [group_by_seed(sweep) for sweep in read_sweeps(sweeps)]
    for number, group in enumerate(groups, 1):
        name = "sweep" if len(groups) == 1 else f"sweep_{number}"
        tables.append(sweep_table(group, name))
        if figure := sweep_figure(group):
            figures[name] = figure
    if not tables and not figures:
        raise UserError("nothing was measured in these folders: there is nothing to report")
    files = save(output, tables, figures)
    for table in tables:
        show(table.printed())
    for file in files:
        print(file)


def tables_of_runs_without_path(runs: Sequence[TrainingTrajectory], folders: Mapping[str, str]) -> list[Table]:
    """Return the scores of finished runs that no figure shows, because alignment and uniformity were not measured."""
    jobs = [read_job(Path(folders[run.label]), run.label) for run in runs if run.points.empty]
    tables = {job.name: run_table(job.run.model_dump()) for job in jobs if job.run}
    return [
        dataclasses.replace(table, name=f"run_{number}", title=f"{label}: {table.title}")
        for number, (label, table) in enumerate(tables.items(), 1)
    ]


def default_label(folder: str) -> str:
    """Return the label of an evaluation, the last two parts of the path of a run, or the path of a sweep."""
    if is_sweep(folder):
        return folder
    report = read(folder)
    return report.label if isinstance(report, Result) else run_label(Path(folder))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="output folder of `simcse evaluate` (or its results.json), of a training run or of a sweep; several "
        "folders of the same sweep are combined",
    )
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="one label per folder, in the same order")
    about = "output folder for tables and figures (default: %(default)s)"
    parser.add_argument("--output", metavar="DIR", default="outputs/report", help=about)
    about = (
        "how to combine the subsets of an STS task: all pairs together, their mean, or a mean by size (default: all)"
    )
    parser.add_argument("--aggregation", choices=AGGREGATIONS, default=AGGREGATIONS[0], help=about)
    about = "write an HTML page of runs and sweeps with interactive charts instead of tables and figures"
    parser.add_argument("--html", metavar="FILE", help=about)


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    labels = arguments.labels or [default_label(folder) for folder in arguments.folders]
    if len(labels) != len(arguments.folders):
        given = f"{len(labels)} labels for {len(arguments.folders)} folders"
        raise UserError(f"--labels: {given}; give one per folder, in the same order")
    folders = dict(zip(labels, arguments.folders, strict=True))
    if len(folders) < len(labels):
        raise UserError(f"two folders have the same label, one of {', '.join(labels)}: set labels with --labels")
    if not arguments.html:
        write_report(folders, arguments.output, arguments.aggregation)
        return
    from simcse_pl.reports.page import page  # Plotly is in the extra `html`

    write_text(Path(arguments.html), page(folders))
    print(arguments.html)
