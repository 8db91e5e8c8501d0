"""Compare encoders, training runs and sweeps: print tables, and save tables and figures, or one HTML page."""

import argparse
import dataclasses
from pathlib import Path

from matplotlib.figure import Figure

from simcse_pl.reports.evaluation_report import check_labels, encoder_figures, encoder_tables, save
from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_figure import sweep_figure
from simcse_pl.reports.sweeps.sweep_results import is_sweep, read_sweeps
from simcse_pl.reports.sweeps.sweep_tables import sweep_tables
from simcse_pl.results.evaluation_results import AGGREGATIONS, Aggregation, Result, read
from simcse_pl.results.trajectory import TrainingTrajectory
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.tables import Table, show

OUTPUT = "outputs/report"


def write_report(folders: list[str], labels: list[str] | None, output: str, aggregation: Aggregation) -> None:
    """Print the tables, save tables and figures, and say where.

    Args:
        folders: of results or of training runs, see `results.read`, or of sweeps, see `sweep_runs.read_sweeps`.
        labels: one a folder; where None, results have their own, runs their folder's name and sweeps their folder.
        output: the folder to write to.
        aggregation: of the subsets of STS12 to STS16.

    Raises:
        UserError: something cannot be read, labels do not fit, or there is nothing to show.
        WriteError: the system does not let something be written.
    """
    check_labels(labels, folders)
    results: list[Result] = []
    runs: list[TrainingTrajectory] = []
    sweeps: dict[str, str] = {}
    for place, folder in enumerate(folders):
        if is_sweep(folder):
            label = labels[place] if labels else folder
            if label in sweeps:
                raise UserError(f"two sweeps are called {label}: give each once, or tell them apart with --labels")
            sweeps[label] = folder
            continue
        match read(folder):
            case Result() as result:
                results.append(result.model_copy(update={"label": labels[place]}) if labels else result)
            case TrainingTrajectory() as path:
                runs.append(dataclasses.replace(path, label=labels[place]) if labels else path)
    own_tables, own_figures = of_sweeps(sweeps)
    tables = encoder_tables(results, aggregation) + own_tables
    figures = encoder_figures(results, runs, aggregation) | own_figures
    if not tables and not figures:
        raise UserError("nothing was measured in what was given: there is nothing to show")
    files = save(output, tables, figures)
    for table in tables:
        show(table.printed())
    for file in files:
        print(file)


def of_sweeps(folders: dict[str, str]) -> tuple[list[Table], dict[str, Figure]]:
    """The tables and the figure of each sweep, called `sweep`, or by its number where there are several."""
    tables, figures = [], {}
    sweeps = read_sweeps(folders)
    for number, sweep in enumerate(sweeps, 1):
        name = f"sweep_{number}" if len(sweeps) > 1 else "sweep"
        groups = group_by_seed(sweep)
        tables += sweep_tables(groups, name)
        if figure := sweep_figure(groups):
            figures[name] = figure
    return tables, figures


def write_page(folders: list[str], labels: list[str] | None, output: str, sentences: str | None) -> None:
    """Write runs and sweeps as one HTML page, and print its path.

    Args:
        folders: of training runs and of sweeps.
        labels: one per folder; where None, runs are labelled by their folder's name, and sweeps by their path.
        output: the file to write.
        sentences: a file of sentences whose neighbours are shown; the project's sample where None.

    Raises:
        UserError: something cannot be read, or labels do not fit.
        WriteError: the page cannot be written.
    """
    from simcse_pl.cli import report_neighbours  # imports torch and transformers
    from simcse_pl.reports.html import page, runs  # imports torch and transformers

    check_labels(labels, folders)
    named = labels or [runs.default_label(folder) for folder in folders]
    if twice := [label for label in named if named.count(label) > 1]:
        raise UserError(f"two folders are called {twice[0]}: give each once, or tell them apart with --labels")
    corpus = report_neighbours.read_corpus(sentences)
    read_runs, read_sweeps = runs.read_runs(dict(zip(named, folders, strict=True)))
    page.write_page(Path(output), page.page(read_runs, read_sweeps, report_neighbours.neighbourhood(read_runs, corpus)))
    print(output)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="results of `simcse evaluate` (or a results.json itself), a training run, whose trajectory is drawn, or a "
        "sweep, whose jobs are compared; folders that hold parts of one sweep are read together",
    )
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="one label per folder, in the same order")
    parser.add_argument("--output", metavar="DIR", help=f"folder for tables and figures ({OUTPUT})")
    parser.add_argument("--aggregation", choices=AGGREGATIONS, help="of the subsets of an STS task (all)")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write one page of runs and sweeps instead, with curves to zoom and compare; it needs no network",
    )
    parser.add_argument(
        "--sentences",
        metavar="FILE",
        help="with --html: show the nearest neighbours of some of these sentences before and after training, for the "
        "run that is best on dev; a sentence a line, or a table of one column (the project's sample)",
    )


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    folders, labels = arguments.folders, arguments.labels
    if arguments.html:
        if arguments.output or arguments.aggregation:
            raise UserError("--html writes one page: leave out --output and --aggregation")
        write_page(folders, labels, arguments.html, arguments.sentences)
        return
    if arguments.sentences:
        raise UserError("--sentences needs --html FILE: only the page shows neighbours")
    write_report(folders, labels, arguments.output or OUTPUT, arguments.aggregation or AGGREGATIONS[0])
