"""Compare encoders, training runs and sweeps in tables and figures, or in one HTML page."""

import argparse
import dataclasses
from pathlib import Path

from simcse_pl.reports.evaluation_report import encoder_figures, encoder_tables, save
from simcse_pl.reports.sweeps.seed_groups import group_by_seed
from simcse_pl.reports.sweeps.sweep_figure import sweep_figure
from simcse_pl.reports.sweeps.sweep_results import is_sweep, read_job, read_sweeps
from simcse_pl.reports.sweeps.sweep_tables import sweep_tables
from simcse_pl.reports.tables.run_table import run_table
from simcse_pl.results.evaluation_results import Result, read
from simcse_pl.results.metrics import AGGREGATIONS, Aggregation
from simcse_pl.results.trajectory import TrainingTrajectory
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import write_text
from simcse_pl.utils.tables import Table
from simcse_pl.utils.terminal import show

OUTPUT = "outputs/report"


def write_report(folders: list[str], labels: list[str] | None, output: str, aggregation: Aggregation) -> None:
    """Print tables, save tables and figures, and print the paths of the files.

    Args:
        folders: folders of evaluations, training runs and sweeps.
        labels: one label per folder. None selects the label of an evaluation, the folder's name of a run, and the
            path of a sweep.
        output: the folder for tables and figures.
        aggregation: how to combine the scores of the subsets of STS12 to STS16.
    """
    results: list[Result] = []
    runs: list[TrainingTrajectory] = []
    scores: list[Table] = []
    sweeps: dict[str, str] = {}
    for folder, label in zip(folders, labels or [""] * len(folders), strict=True):
        if is_sweep(folder):
            if (label or folder) in sweeps:
                raise UserError(f"two sweeps have the label {label or folder}: set labels with --labels")
            sweeps[label or folder] = folder
            continue
        match read(folder):
            case Result() as result:
                results.append(result.model_copy(update={"label": label}) if label else result)
            case TrainingTrajectory() as run:
                run = dataclasses.replace(run, label=label) if label else run
                runs.append(run)
                if run.points.empty and (own := read_job(Path(folder), run.label).run):  # no figure shows its path
                    table = run_table(own.model_dump())
                    name, title = f"run_{len(scores) + 1}", f"{run.label}: {table.title}"
                    scores.append(dataclasses.replace(table, name=name, title=title))
    tables = encoder_tables(results, aggregation) + scores
    figures = encoder_figures(results, runs, aggregation)
    groups = [group_by_seed(sweep) for sweep in read_sweeps(sweeps)]
    for number, group in enumerate(groups, 1):
        name = "sweep" if len(groups) == 1 else f"sweep_{number}"
        tables += sweep_tables(group, name)
        if figure := sweep_figure(group):
            figures[name] = figure
    if not tables and not figures:
        raise UserError("nothing was measured in these folders: there is nothing to report")
    files = save(output, tables, figures)
    for table in tables:
        show(table.printed())
    for file in files:
        print(file)


def write_page(folders: list[str], labels: list[str] | None, output: str, sentences: str | None) -> None:
    """Write training runs and sweeps as one HTML page, and print its path.

    Args:
        folders: folders of training runs and sweeps.
        labels: one label per folder. None selects the folder's name of a run, and the path of a sweep.
        output: the file to write.
        sentences: a file of sentences for the neighbours; None for the packaged sample.
    """
    from simcse_pl.cli.report_neighbours import find_neighbours  # imports torch and transformers
    from simcse_pl.reports.html import page, runs

    labels = labels or [runs.default_label(folder) for folder in folders]
    if repeated := [label for label in labels if labels.count(label) > 1]:
        raise UserError(f"two folders have the label {repeated[0]}: set labels with --labels")
    page_runs, page_sweeps = runs.read_runs(dict(zip(labels, folders, strict=True)))
    write_text(Path(output), page.page(page_runs, page_sweeps, find_neighbours(page_runs, sentences)))
    print(output)


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
    parser.add_argument("--output", metavar="DIR", help=f"output folder for tables and figures (default: {OUTPUT})")
    about = (
        "how to combine the subsets of an STS task: all pairs together, their mean, or a mean by size (default: all)"
    )
    parser.add_argument("--aggregation", choices=AGGREGATIONS, help=about)
    about = "write an HTML page of runs and sweeps with interactive charts instead of tables and figures"
    parser.add_argument("--html", metavar="FILE", help=about)
    about = (
        "with --html: file of sentences, one per line or in one column; the page shows nearest neighbours among them, "
        "before and after training, for the run with the best score on dev (default: the project's sample)"
    )
    parser.add_argument("--sentences", metavar="FILE", help=about)


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    folders, labels = arguments.folders, arguments.labels
    if labels and len(labels) != len(folders):
        given = f"{len(labels)} labels for {len(folders)} folders"
        raise UserError(f"--labels: {given}; give one per folder, in the same order")
    if arguments.html:
        if arguments.output or arguments.aggregation:
            raise UserError("--html writes one page: leave out --output and --aggregation")
        write_page(folders, labels, arguments.html, arguments.sentences)
        return
    if arguments.sentences:
        raise UserError("--sentences needs --html FILE: only the page shows neighbours")
    write_report(folders, labels, arguments.output or OUTPUT, arguments.aggregation or AGGREGATIONS[0])
